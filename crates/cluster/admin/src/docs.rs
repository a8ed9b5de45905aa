//! The docs: the book of `docs/`, which packaged builds have inside.
//!
//! `cargo xtask dist` builds the book and names its folder to `build.rs`, which compresses each file.
//! Another build answers with the name of the file in the sources.

use std::sync::LazyLock;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Full};

use crate::error::ApiError;
use crate::reply::{Reply, reply};
use crate::static_file::{CSS, HTML, SCRIPT, SVG, StaticFile, check_reads, redirect};

/// Folder of the docs.
const FOLDER: &str = "/docs";
/// Page that the folder itself leads to.
const INDEX: &str = "README.html";

const TEXT: &str = "text/plain; charset=utf-8";

/// Rights of a page, as those of the console with two exceptions: the search is a form, and the
/// theme has its symbols inside its style sheet.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

/// Name and compressed content of each file of the book; empty in builds without it.
static PACKED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/book.rs"));

static BOOK: LazyLock<Book> = LazyLock::new(|| Book::new(PACKED));

struct Book {
    files: Vec<StaticFile>,
}

/// Answers a request for a page of the docs; `None` if the path is not one of the docs. The caller
/// has checked the host that the request names.
#[must_use]
pub fn docs(head: &Parts) -> Option<Reply> {
    let name = match head.uri.path().strip_prefix(FOLDER)? {
        // Without the slash, the page's relative addresses would resolve to other paths.
        "" => return Some(redirect("docs/")),
        rest => rest.strip_prefix('/')?,
    };
    let answered = BOOK.answer(name, head);
    Some(answered.unwrap_or_else(ApiError::into_reply))
}

impl Book {
    fn new(packed: &[(&'static str, &'static [u8])]) -> Self {
        let files = packed
            .iter()
            .map(|(name, content)| StaticFile::packed(name, content_type(name), content));
        Self { files: files.collect() }
    }

    /// Answers for a name that has to be that of a file: no name leads to a folder of the machine.
    fn answer(&self, name: &str, head: &Parts) -> Result<Reply, ApiError> {
        check_reads(head, "the docs")?;
        // Commands name pages by their files in the sources.
        if let Some(page) = name.strip_suffix(".md") {
            let last = page.rsplit('/').next().unwrap_or(page);
            return Ok(redirect(&format!("{last}.html")));
        }
        let wanted = if name.is_empty() { INDEX } else { name };
        match self.files.iter().find(|file| file.name == wanted) {
            Some(file) => Ok(file.reply(head, POLICY)),
            None if self.files.is_empty() => Ok(absent(wanted)),
            None => {
                let cause = "the docs have no such page";
                Err(ApiError::new(StatusCode::NOT_FOUND, "no_such_path", cause, "try /docs/"))
            }
        }
    }
}

/// Answers for a page that this build does not have.
fn absent(name: &str) -> Reply {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let page = name.strip_suffix(".html").filter(|page| page.chars().all(is_plain));
    let source = page.map_or_else(|| "docs/README.md".to_owned(), |page| format!("docs/{page}.md"));
    let text = format!(
        "This build has no docs inside. Packages have them (cargo xtask dist).\n\
         In the sources the page is {source}, and cargo xtask book makes a book of all pages.\n"
    );
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut reply = reply(StatusCode::NOT_FOUND, TEXT, body.boxed_unsync());
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    reply
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => HTML,
        "css" => CSS,
        "js" => SCRIPT,
        "svg" => SVG,
        "png" => "image/png",
        "json" => "application/json",
        // Files that pages link to, such as configs and scripts, are for reading.
        _ => TEXT,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use flate2::write::GzEncoder;
    use flate2::{Compression, read::GzDecoder};

    use super::*;

    const PAGE: &[u8] = b"<!doctype html><title>Alerts</title>";

    fn packed(content: &[u8]) -> &'static [u8] {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(content).unwrap();
        packer.finish().unwrap().leak()
    }

    fn book() -> Book {
        Book::new(&[
            (INDEX, packed(b"<!doctype html>")),
            ("guides/alerts.html", packed(PAGE)),
            ("_static/styles/furo.css", packed(b"body{}")),
            ("searchindex.js", packed(b"1")),
            ("_images/overview.svg", packed(b"<svg/>")),
            ("_downloads/1/compose.yaml", packed(b"a: 1")),
        ])
    }

    fn head(path: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn get(book: &Book, name: &str, headers: &[(&str, &str)]) -> Reply {
        // The name is what counts: some of them are no path.
        let answered = book.answer(name, &head("/docs/", headers));
        answered.unwrap_or_else(ApiError::into_reply)
    }

    async fn text(reply: Reply) -> Vec<u8> {
        reply.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_page_comes_compressed_or_not_as_the_client_reads() {
        let book = book();
        let reply = get(&book, "guides/alerts.html", &[("accept-encoding", "gzip, br")]);
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(reply.headers()["content-encoding"], "gzip");
        assert_eq!(reply.headers()["content-type"], HTML);
        assert_eq!(reply.headers()["vary"], "Accept-Encoding");
        let mut unpacked = Vec::new();
        GzDecoder::new(&*text(reply).await).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, PAGE);

        let reply = get(&book, "guides/alerts.html", &[]);
        assert!(reply.headers().get("content-encoding").is_none());
        let tag = reply.headers()["etag"].to_str().unwrap().to_owned();
        assert_eq!(text(reply).await, PAGE);
        let again = get(&book, "guides/alerts.html", &[("if-none-match", &tag)]);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn every_file_has_its_type_and_the_headers_of_a_page() {
        for (name, expected) in [
            ("", HTML),
            ("_static/styles/furo.css", CSS),
            ("searchindex.js", SCRIPT),
            ("_images/overview.svg", SVG),
            ("_downloads/1/compose.yaml", TEXT),
        ] {
            let reply = get(&book(), name, &[]);
            assert_eq!(reply.status(), StatusCode::OK, "{name}");
            assert_eq!(reply.headers()["content-type"], expected, "{name}");
            assert_eq!(reply.headers()["x-content-type-options"], "nosniff");
            let policy = reply.headers()["content-security-policy"].to_str().unwrap();
            assert!(
                policy.contains("default-src 'none'") && !policy.contains("unsafe"),
                "{policy}"
            );
        }
    }

    #[test]
    fn no_name_leads_out_of_the_book() {
        for name in [
            "../Cargo.toml",
            "guides/../../Cargo.toml",
            "%2e%2e/Cargo.toml",
            "/etc/passwd",
            "guides",
            "guides/",
            "guides//alerts.html",
            "_static/",
            "nothing.html",
        ] {
            assert_eq!(get(&book(), name, &[]).status(), StatusCode::NOT_FOUND, "{name}");
        }
    }

    #[test]
    fn a_page_is_found_by_its_file_in_the_sources() {
        let reply = get(&book(), "guides/alerts.md", &[]);
        assert_eq!(reply.headers()["location"], "alerts.html");
        let folder = docs(&head("/docs", &[])).unwrap();
        assert_eq!(folder.headers()["location"], "docs/");
        assert!(docs(&head("/docsy", &[])).is_none());
        assert!(docs(&head("/metrics", &[])).is_none());
    }

    #[tokio::test]
    async fn a_build_without_the_book_names_the_file_in_the_sources() {
        let none = Book::new(&[]);
        for (name, source) in [
            ("", "docs/README.md"),
            ("guides/alerts.html", "docs/guides/alerts.md"),
            ("<b>.html", "docs/README.md"),
        ] {
            let reply = get(&none, name, &[]);
            assert_eq!(reply.status(), StatusCode::NOT_FOUND);
            assert_eq!(reply.headers()["content-type"], TEXT);
            let text = String::from_utf8(text(reply).await).unwrap();
            assert!(text.contains(source) && !text.contains('<'), "{text}");
        }
    }
}
