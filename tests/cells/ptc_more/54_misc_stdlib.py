import graphlib, colorsys, cmath, operator, types, weakref, sched, time, numbers, reprlib, platform, locale, gettext, codecs, quopri, email.message, mimetypes, tomllib, configparser, netrc, getopt, stat, errno, contextvars
print(list(graphlib.TopologicalSorter({"c": {"b"}, "b": {"a"}}).static_order()), colorsys.rgb_to_hsv(1, 0, 0), cmath.sqrt(-4), mimetypes.guess_type("a.csv"), tomllib.loads("a = [1, 2]\n[b]\nc = 'x'"))
cp = configparser.ConfigParser(); cp.read_string("[s]\nk = v\n"); print(cp["s"]["k"], dict(cp.items("s")))
m = email.message.EmailMessage(); m["To"] = "a@b.c"; m.set_content("hé"); print(m.get_content().strip(), m["To"])
print(reprlib.repr(list(range(100))), codecs.encode("abc", "rot13"), isinstance(3, numbers.Integral), types.SimpleNamespace(a=1), errno.errorcode[2])
v = contextvars.ContextVar("v", default=1); tok = v.set(2); v.reset(tok); print(v.get())
s = sched.scheduler(time.monotonic, time.sleep); s.enter(0, 1, print, ("scheduled",)); s.run()
print(locale.format_string("%d", 12345, grouping=False), "{:n}".format(1234567), locale.getlocale() is not None)
class A: pass
a = A(); r = weakref.ref(a); del a; r() is None
