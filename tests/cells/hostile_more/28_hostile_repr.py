class S(str):
    def __len__(self): return 0
    def __getitem__(self, i): raise SystemError("slice")
    def __str__(self): return self
    def encode(self, *a): raise SystemError("encode")
class R:
    def __repr__(self): return S("evil" * 100000)
    @property
    def __class__(self): raise SystemError("class")
print(R()); print(S("x"))
R()
