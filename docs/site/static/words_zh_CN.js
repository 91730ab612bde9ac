// What the search says, where Sphinx 8.1 asks for one page or several and its Chinese has only the older sentence.
Documentation.TRANSLATIONS["Search finished, found one page matching the search query."] = [
  "搜索完成，找到 ${resultCount} 页。",
];
