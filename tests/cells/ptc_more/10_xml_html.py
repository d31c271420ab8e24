import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from html import escape, unescape
doc = ET.fromstring("<shop><item id='1' price='9.5'>Pen</item><item id='2' price='12'>Möbel &amp; co</item></shop>")
print([(i.get("id"), float(i.get("price")), i.text) for i in doc.iter("item")], doc.find("item[@id='2']").text)
ET.SubElement(doc, "total").text = str(sum(float(i.get("price")) for i in doc.findall("item")))
ET.indent(doc)
print(ET.tostring(doc, encoding="unicode"))
class Links(HTMLParser):
    def __init__(self):
        super().__init__(); self.links = []; self.text = []
    def handle_starttag(self, tag, attrs):
        if tag == "a": self.links.append(dict(attrs).get("href"))
    def handle_data(self, data): self.text.append(data.strip())
p = Links(); p.feed("<p>Hi <a href='/x?a=1&amp;b=2'>there</a><br/><a>no</a></p>")
print(p.links, [t for t in p.text if t], escape("<a href=\"x\">'"), unescape("&eacute;&#8364;&lt;"))
try: ET.fromstring("<a><b></a>")
except ET.ParseError as e: print("ParseError", e, e.position)
from xml.dom import minidom
minidom.parseString("<r><x>1</x></r>").toprettyxml(indent=" ")
