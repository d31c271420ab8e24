import heapq, itertools
from dataclasses import dataclass, field
counter = itertools.count()
@dataclass(order=True)
class Job:
    prio: int
    seq: int = field(default_factory=lambda: next(counter))
    name: str = field(compare=False, default="")
heap = []
for p, n in [(3, "c"), (1, "a"), (2, "b"), (1, "a2")]:
    heapq.heappush(heap, Job(p, name=n))
while heap:
    print(heapq.heappop(heap))
print(heapq.nlargest(2, [5, 1, 9], key=lambda x: -x), list(heapq.merge([1, 4], [2, 3])))
Job(1)
# %%
Job(1, 2, "z") < Job(1, 3)
