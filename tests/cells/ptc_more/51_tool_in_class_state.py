class Client:
    def __init__(self, server): self._s = MCPServer(server); self.cache = {}; self.hits = 0
    def __getattr__(self, name):
        def call(*a, **k):
            key = (name, a, tuple(sorted(k.items())))
            if key in self.cache: self.hits += 1
            else: self.cache[key] = getattr(self._s, name)(*a, **k)
            return self.cache[key]
        return call
c = Client("Weather")
print([c.get_forecast(city=x)["city"] for x in ("Rome", "Rome", "Oslo")], c.hits)
tools = {"sum": MCPServer("Math").sum, "avg": lambda v: MCPServer("Math").sum(v) / len(v)}
print({k: f([1, 2, 6]) for k, f in tools.items()})
import copy
d = copy.deepcopy(MCPServer("Weather").get_forecast("Paris", 2)); d["daily"].clear(); print(d)
import copy; s2 = copy.copy(c._s); s2.list_cities()[:2]
# %%
c.get_forcast("Paris")
