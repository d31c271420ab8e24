math = MCPServer("Weather")
class ForecastError(RuntimeError):
    def __init__(self, city, reason):
        super().__init__(f"{city}: {reason}")
        self.city = city
def temp(city):
    try:
        return math.get_forecast(city=city)["daily"][0]["temp"]
    except ToolError as e:
        raise ForecastError(city, e) from e
try:
    temp("Nowhere")
except ForecastError as e:
    print(repr(e), e.city, type(e.__cause__).__name__, e.__cause__.tool, e.__cause__.server)
try:
    try:
        math.get_forecast("Nope")
    except ToolError:
        raise KeyError("second")
except KeyError as e:
    print(repr(e.__context__), e.__suppress_context__)
temp("Nowhere")
# %%
temp("Paris")
