import unicodedata, string
größe = 3; 名前 = "漢字"; ñ = größe * 2
print(größe, 名前, ñ, "ﬁ".casefold(), unicodedata.name("é"), unicodedata.normalize("NFD", "é").encode(), len("👨‍👩‍👧"))
print("ÄÖÜß".lower(), "straße".upper(), "ǅ".title(), "i̇".upper(), sorted(["zebra", "Äpfel", "apple"]), "é" == "é")
print("\u202eabc", "tab\there", "nul\x00end", "bell\a", ascii("é☃😀"), "😀".encode("utf-16-le"), "ü".encode("latin-1"))
print("naïve café".translate(str.maketrans("ïé", "ie")), "ab".zfill(5), "x".center(7, "·"), "a,b,,c".split(","), "  x ".strip() + "|")
try: "é".encode("ascii")
except UnicodeEncodeError as e: print(e)
try: b"\xff".decode()
except UnicodeDecodeError as e: print(e)
print(b"\xff".decode(errors="replace"), "\N{SNOWMAN}", r"\n", b'\x00\'"', 'it\'s "q"')
"multi\nline 'value' \\ \t é 😀 \x07"
