"""Redaction: a copy of a run without what identifies its owner, that is still a bundle which can be verified.

- fields: what every text of a bundle is: harmless, free text, or the name of something
- patterns: what identifies in free text, wherever it comes from
- pseudonyms: the values that were found, and what stands in their place
- values: structs with their texts replaced
- bundle: the files of the redacted copy
- copying: finds what identifies, makes the copy and puts it in its place
"""
