import os
data = os.read(3, 100)
print("READ", data)
