import re
for p, s in ((r"(a+)+$", "a" * 30 + "b"), (r"(.*)*x", "a" * 40), (r"(a|aa)+$", "a" * 60 + "b")):
    re.match(p, s)
