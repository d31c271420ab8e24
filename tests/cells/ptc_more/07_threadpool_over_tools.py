from concurrent.futures import ThreadPoolExecutor, as_completed
weather = MCPServer("Weather")
cities = weather.list_cities()
with ThreadPoolExecutor(max_workers=4) as pool:
    hot = dict(zip(cities, pool.map(lambda c: max(d["temp"] for d in weather.get_forecast(city=c, days=5)["daily"]), cities)))
print(hot)
with ThreadPoolExecutor() as pool:
    futures = {pool.submit(weather.get_forecast, c): c for c in ["Paris", "Atlantis", "Oslo"]}
    got = {}
    for f in as_completed(futures):
        try:
            got[futures[f]] = len(f.result()["daily"])
        except ToolError as e:
            got[futures[f]] = f"failed: {e}"
print(sorted(got.items()))
f = ThreadPoolExecutor(1).submit(pow, 2, 10)
f.result()
