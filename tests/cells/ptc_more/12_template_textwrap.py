from string import Template
import textwrap, string
t = Template("Dear $name, you owe ${amount}€. $$5 off! $missing")
print(t.safe_substitute(name="Ann", amount=12))
try: t.substitute(name="x", amount=1)
except KeyError as e: print("missing", e)
para = "The quick brown fox jumps over the lazy dog. " * 4
print(textwrap.fill(para, 40, initial_indent="* ", subsequent_indent="  "))
print(textwrap.dedent("""
    def f():
        return 1
    """).strip())
print(textwrap.shorten(para, 30), string.ascii_lowercase[:5], textwrap.indent("a\nb", "> "))
"{:>10}|{:^10}|{:<10}|{:+.1e}|{:#x}|{!r:>6}".format("r", "m", "l", 12345.678, 255, "q")
