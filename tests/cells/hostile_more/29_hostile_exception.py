class M(type):
    @property
    def __name__(cls): raise SystemError("name")
    def __instancecheck__(cls, o): raise SystemError("check")
    def __getattribute__(cls, n): raise SystemError(n)
class E(Exception, metaclass=M):
    def __str__(self): raise E2()
    __repr__ = __str__
    @property
    def __class__(self): raise SystemError("class")
    @property
    def errno(self): raise SystemError("errno")
class E2(BaseException):
    def __str__(self): raise SystemExit(9)
raise E()
