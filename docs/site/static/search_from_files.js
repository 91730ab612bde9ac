// Pages that are opened as files may not read each other: results then have titles, and no lines around what was found.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
