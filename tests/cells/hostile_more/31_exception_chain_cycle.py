a, b = ValueError("a"), ValueError("b")
a.__cause__, b.__cause__ = b, a
a.__context__, b.__context__ = a, b
top = a
for i in range(20000):
    n = ValueError(i); n.__context__ = top; top = n
raise top
