matrix = [[1, 2, 3], [4, 5, 6]]
print([list(c) for c in zip(*matrix)], [x for r in matrix for x in r if x % 2], {x: y for x, y in enumerate("ab")}, {len(w) for w in ("a", "bb", "cc")})
threshold = 3
print([x for r in matrix for x in r if x > threshold], [y := 5, y**2], [last := i for i in range(3)], last)
def outer():
    return [threshold * i for i in range(3)], (lambda: threshold)()
print(outer())
class C:
    base = 10
    vals = [b for b in range(3)]
    lookup = {"base": base}
print(C.vals, C.lookup)
x = 10
def shadow():
    try: print(x)
    except UnboundLocalError as e: print(type(e).__name__)
    x = 5
shadow()
print([[i * j for j in range(1, 4)] for i in range(1, 4)], *[c for c in "ab"], sep="\n")
a = b = []; a.append(1); print(b, a is b); c = [[0] * 2] * 2; c[0][0] = 1; print(c)
def default(l=[]): l.append(1); return l
print(default(), default())
words = "the cat the dog".split(); {w: words.count(w) for w in dict.fromkeys(words)}
