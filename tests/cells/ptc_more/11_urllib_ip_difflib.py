from urllib.parse import urlparse, parse_qs, urlencode, urljoin, quote, unquote, urlsplit
import ipaddress, difflib
u = urlparse("https://user:pw@shop.example.org:8443/a/b;p?q=ä b&x=1&x=2#frag")
print(u, u.hostname, u.port, parse_qs("q=%C3%A4+b&x=1&x=2"), urlencode({"a b": "ü&", "l": [1, 2]}, doseq=True))
print(urljoin("https://x.org/a/b/", "../c"), quote("/a b/ü"), unquote("%E2%82%AC"))
net = ipaddress.ip_network("10.0.0.0/29")
print([str(h) for h in net.hosts()], ipaddress.ip_address("::1").is_loopback, net.num_addresses)
try: ipaddress.ip_address("300.1.1.1")
except ValueError as e: print(e)
print("\n".join(difflib.unified_diff("a\nb\nc".split("\n"), "a\nB\nc\nd".split("\n"), "old", "new", lineterm="")))
print(difflib.get_close_matches("appel", ["ape", "apple", "peach"]), round(difflib.SequenceMatcher(None, "abcd", "bcde").ratio(), 3))
