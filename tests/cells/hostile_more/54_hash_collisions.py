class H:
    def __hash__(self): return 1
    def __eq__(self, o): return False
d = {}
for i in range(10**6): d[H()] = i
