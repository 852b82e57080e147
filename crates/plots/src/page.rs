//! The frame of a report.

use crate::text::escape;

/// Returns a page in the style of all reports. The page loads no other file and has no scripts.
/// `body` is HTML.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    // Without an icon in the page, a browser would ask the server for one.
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title),
        include_str!("style.css")
    )
}
