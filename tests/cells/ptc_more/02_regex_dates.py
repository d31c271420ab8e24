import re
from datetime import date, datetime, timedelta
text = """Order ORD-1001 placed 2025-03-06; due in 14 days.
Invoice #77 (2025/02/28) - EUR 1,234.50
Contact: jane.doe@example.org, +49 (30) 1234-567"""
iso = [date.fromisoformat(m) for m in re.findall(r"\b\d{4}-\d{2}-\d{2}\b", text)]
print(iso, iso[0] + timedelta(days=14), (iso[0] + timedelta(14)).strftime("%A %d %B %Y, week %V"))
m = re.search(r"(?P<y>\d{4})/(?P<m>\d\d)/(?P<d>\d\d)", text)
print(m.groupdict(), m.span(), m)
print(re.sub(r"(\d),(\d{3})", r"\1\2", text).splitlines()[1])
print(re.split(r"[;,\n]\s*", text))
for m in re.finditer(r"[\w.]+@[\w.]+", text): print(m.group(), m.start())
print(datetime.strptime("28 Feb 2024 23:59", "%d %b %Y %H:%M") + timedelta(minutes=2))
re.compile(r"(a|b)+c", re.I | re.M)
