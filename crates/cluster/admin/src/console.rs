//! The console: a web page for operators, whose files are part of the program.
//!
//! The files hold nothing secret, so they are served without a token. All that the page shows comes
//! from the admin API, with the operator's own token.

use std::sync::LazyLock;

use http::request::Parts;
use http::{StatusCode, header};

use crate::error::ApiError;
use crate::reply::Reply;
use crate::static_file::{CSS, HTML, SCRIPT, SVG, StaticFile, check_reads, redirect};

/// Folder of the console.
const FOLDER: &str = "/console";

/// Rights of the page: it loads only its own files, talks only to its own node, sends no form, and
/// is shown in no frame, where a click could be stolen.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

macro_rules! file {
    ($name:literal, $type:ident) => {
        StaticFile::plain($name, $type, include_bytes!(concat!("../console/", $name)))
    };
}

static FILES: LazyLock<Vec<StaticFile>> = LazyLock::new(|| {
    vec![
        StaticFile::plain("", HTML, include_bytes!("../console/index.html")),
        file!("style.css", CSS),
        file!("icon.svg", SVG),
        file!("main.js", SCRIPT),
        file!("api.js", SCRIPT),
        file!("arms.js", SCRIPT),
        file!("clients.js", SCRIPT),
        file!("drawer.js", SCRIPT),
        file!("form.js", SCRIPT),
        file!("keys.js", SCRIPT),
        file!("request.js", SCRIPT),
        file!("spend.js", SCRIPT),
        file!("live.js", SCRIPT),
        file!("dom.js", SCRIPT),
        file!("format.js", SCRIPT),
        file!("table.js", SCRIPT),
        file!("actions.js", SCRIPT),
        file!("certificates.js", SCRIPT),
        file!("signals.js", SCRIPT),
        file!("map.js", SCRIPT),
        file!("land.js", SCRIPT),
        file!("views/world.js", SCRIPT),
        file!("views/region.js", SCRIPT),
        file!("views/replicas.js", SCRIPT),
        file!("views/routes.js", SCRIPT),
        file!("views/control.js", SCRIPT),
        file!("views/limits.js", SCRIPT),
        file!("views/prompts.js", SCRIPT),
        file!("views/alerts.js", SCRIPT),
        file!("views/explain.js", SCRIPT),
        file!("views/requests.js", SCRIPT),
        file!("words.js", SCRIPT),
    ]
});

/// Answers a request for a file of the console; `None` if the path is not one of the console. The
/// caller has checked the host that the request names.
#[must_use]
pub fn console(head: &Parts) -> Option<Reply> {
    if head.uri.path() == "/" && wants_page(head) {
        let mut reply = redirect("console/");
        // Another program may have the port tomorrow, so no browser keeps it in mind.
        *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        return Some(reply);
    }
    let name = match head.uri.path().strip_prefix(FOLDER)? {
        // Without the slash, the page's relative addresses would resolve to other paths.
        "" => return Some(redirect("console/")),
        rest => rest.strip_prefix('/')?,
    };
    let answered = answer(name, head);
    Some(answered.unwrap_or_else(ApiError::into_reply))
}

/// Returns true for browsers. Programs that ask for the root get an error that names the paths.
fn wants_page(head: &Parts) -> bool {
    let accepted = head.headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

fn answer(name: &str, head: &Parts) -> Result<Reply, ApiError> {
    check_reads(head, "the console")?;
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        let cause = "the console has no such file";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "no_such_path", cause, "try /console/"));
    };
    Ok(file.reply(head, POLICY))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn get(path: &str, headers: &[(&str, &str)]) -> Option<Reply> {
        let mut request = http::Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        console(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn every_file_of_the_folder_is_served_and_no_other() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let mut left: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        let mut folders = vec![folder.clone()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(&folder).unwrap().to_str().unwrap();
                let name = if name == "index.html" { "" } else { name };
                // Names the sources of the outlines; no part of the page.
                if name == "SOURCES.md" {
                    continue;
                }
                let at = left.iter().position(|known| *known == name);
                left.remove(at.unwrap_or_else(|| panic!("{name} is not served")));
            }
        }
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_file_comes_once_and_is_then_known_by_its_tag() {
        let reply = get("/console/", &[]).unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(reply.headers()["content-type"], HTML);
        assert_eq!(reply.headers()["x-content-type-options"], "nosniff");
        let policy = reply.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let tag = reply.headers()["etag"].to_str().unwrap();
        for known in [tag, &format!("W/{tag}"), &format!("\"x\", {tag}")] {
            let again = get("/console/", &[("if-none-match", known)]).unwrap();
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        }
        let other = get("/console/style.css", &[("if-none-match", tag)]).unwrap();
        assert_eq!(other.status(), StatusCode::OK);
        assert_ne!(other.headers()["etag"], tag);
    }

    #[test]
    fn only_paths_below_the_folder_are_the_consoles() {
        assert!(get("/consoles", &[]).is_none());
        assert!(get("/metrics", &[]).is_none());
        let redirected = get("/console", &[]).unwrap();
        assert_eq!(redirected.headers()["location"], "console/");
        let to_root = get("/", &[("accept", "text/html,*/*")]).unwrap();
        assert_eq!(
            (to_root.status(), &to_root.headers()["location"]),
            (StatusCode::TEMPORARY_REDIRECT, &"console/".parse().unwrap())
        );
        assert!(get("/", &[("accept", "*/*")]).is_none());
        for wrong in ["/console/nothing.js", "/console/../admin.rs", "/console//", "/console/views"]
        {
            assert_eq!(get(wrong, &[]).unwrap().status(), StatusCode::NOT_FOUND, "{wrong}");
        }
    }

    #[test]
    fn no_file_names_another_host() {
        for file in FILES.iter() {
            let text = std::str::from_utf8(file.content).unwrap();
            // A namespace is a name and nothing to load.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for scheme in ["http://", "https://", "src=\"/", "href=\"/", "from \"/"] {
                assert!(!text.contains(scheme), "{} has {scheme}", file.name);
            }
        }
    }
}
