from collections import Counter, deque, OrderedDict, ChainMap, defaultdict, namedtuple
import itertools as it, operator as op
events = MCPServer("Shop").list_orders(page_size=14)["orders"]
print(Counter(o["status"] for o in events).most_common(), Counter("abca") - Counter("ab"), Counter(a=1).total())
d = deque(range(5), maxlen=3); d.appendleft(9); d.rotate(1)
print(d, OrderedDict(a=1, b=2).popitem(last=False), ChainMap({"a": 1}, {"a": 2, "b": 3})["b"])
print([(k, len(list(g))) for k, g in it.groupby(sorted(events, key=op.itemgetter("status")), key=op.itemgetter("status"))])
print(list(it.accumulate([1, 2, 3], op.mul)), list(it.chain.from_iterable([[1], [2, 3]])), list(it.islice(it.cycle("ab"), 5)), list(it.pairwise("abc")))
print(list(it.product([1, 2], "x")), list(it.permutations("abc", 2))[:3], list(it.combinations(range(4), 2))[:2], list(it.zip_longest("ab", "c", fillvalue="-")))
print(list(it.takewhile(lambda x: x < 3, it.count())), list(it.starmap(pow, [(2, 3)])), list(it.compress("abc", [1, 0, 1])), list(it.dropwhile(bool, [1, 0, 2])))
tree = lambda: defaultdict(tree)
t = tree(); t["a"]["b"] = 1
P = namedtuple("P", "x y", defaults=[0])
print(P(1), P(1)._asdict(), op.attrgetter("x")(P(7)), op.methodcaller("upper")("a"), dict(t["a"]))
defaultdict(int, {"a": 1})
