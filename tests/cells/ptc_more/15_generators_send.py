def running():
    total, n = 0.0, 0
    while True:
        try:
            x = yield total / n if n else None
        except ValueError as e:
            print("bad", e); continue
        total += x; n += 1
g = running(); next(g)
print([g.send(x) for x in (10, 20, 60)])
g.throw(ValueError("oops"))
def chain():
    r = yield from (i * i for i in range(3))
    try:
        yield "mid"
    finally:
        print("closed")
c = chain()
print(next(c), next(c), next(c), next(c))
c.close()
g.close()
print(g.gi_frame, list(zip(*[iter(range(6))] * 2)))
(x for x in range(3))
# %%
sum(1 for _ in range(10)), any(x > 3 for x in [1, 5]), next((x for x in [] ), "default")
