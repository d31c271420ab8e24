import unittest, doctest
def add(a, b):
    """
    >>> add(1, 2)
    3
    >>> add("a", "b")
    'ab'
    """
    return a + b
class T(unittest.TestCase):
    def test_ok(self): self.assertEqual(add(1, 2), 3)
    def test_bad(self): self.assertIn(1, [2])
r = unittest.TextTestRunner(stream=__import__("io").StringIO()).run(unittest.defaultTestLoader.loadTestsFromTestCase(T))
print(r.testsRun, len(r.failures), r.wasSuccessful())
doctest.testmod(verbose=False)
# %%
import timeit, cProfile, tracemalloc
print(timeit.timeit("1+1", number=10) > 0); cProfile.run("sum(range(10))", sort="name") if False else None
from unittest import mock
with mock.patch("builtins.len", return_value=99): print(len([]))
len([])
