import time, random
random.seed(1)
attempts = []
def call(city):
    for attempt in range(1, 4):
        try:
            return MCPServer("Weather").get_forecast(city=city, days=1)
        except ToolError as e:
            attempts.append((attempt, str(e)))
            time.sleep(0.005 * 2 ** attempt + random.random() / 1000)
    return None
print(call("Paris")["city"], call("Gotham"), len(attempts), attempts[0])
else_ran = False
for i in range(2): pass
else: else_ran = True
while attempts: attempts.pop()
else_ran, attempts
