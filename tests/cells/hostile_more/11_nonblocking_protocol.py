import os
os.set_blocking(3, False)
print(MCPServer("Math").add(a=1, b=2))
