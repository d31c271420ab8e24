for i in range(3000): print(i, "row", i * i)
print("tail"); list(range(20000))
