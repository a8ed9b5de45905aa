//! `[traces]`: spans that are sent to a collector.

use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use spillway_traces::TracesConfig;
use spillway_types::settings;
use toml::Spanned;

use crate::error::ConfigError;
use crate::replica_url::check_host;
use crate::source::{Source, read_file};

/// Path that OTLP over HTTP has for traces, if the endpoint names none.
const TRACES_PATH: &str = "/v1/traces";

settings! {
    /// `[traces]`: spans of requests, sent to a collector by OTLP over HTTP. They contain no text of
    /// prompts or replies.
    pub(crate) struct TracesSection {
        /// Address of the collector's HTTP port, e.g. `http://127.0.0.1:4318`. No spans are sent by
        /// default.
        #[schemars(with = "Option<String>")]
        endpoint: Option<Spanned<String>> = None,
        /// Share of the traces that begin at this node to send, in percent. Traces begun by a caller
        /// are sent if the caller sampled them. Failed, shed and slow requests, with ten seconds or
        /// more to the first byte, are always sent.
        #[schemars(range(min = 0, max = 100))]
        share_percent: f64 = 1.0,
        /// File with further headers to send, such as a key, in lines of `name: value`.
        #[schemars(with = "Option<String>")]
        headers_file: Option<Spanned<String>> = None,
        /// Certificates to trust at an `https` endpoint, PEM. The system's by default.
        #[schemars(with = "Option<String>")]
        ca: Option<Spanned<String>> = None,
    }
}

/// Time to the first byte of a reply from which on a request is always sent.
const SLOW: Duration = Duration::from_secs(10);

/// Checks the section. Returns `None` if nothing is to be sent.
pub(crate) fn lower_traces(
    source: &Source,
    section: TracesSection,
) -> Result<Option<Box<TracesConfig>>, ConfigError> {
    let Some(endpoint) = &section.endpoint else { return Ok(None) };
    let ca_pem = section.ca.map(|file| read_file(&file, source)).transpose()?;
    let headers = section.headers_file.map(|file| read_headers(&file, source)).transpose()?;
    Ok(Some(Box::new(TracesConfig {
        endpoint: endpoint_of(endpoint, source)?,
        share_percent: section.share_percent,
        slow: SLOW,
        headers: headers.unwrap_or_default(),
        ca_pem,
    })))
}

fn endpoint_of(text: &Spanned<String>, source: &Source) -> Result<Uri, ConfigError> {
    let fault = || {
        let message = format!("{:?} is no address of a collector", text.get_ref());
        source.fault(text.span(), message, "give a URL, e.g. http://127.0.0.1:4318")
    };
    let uri: Uri = text.get_ref().parse().map_err(|_| fault())?;
    let mut parts = uri.into_parts();
    let is_known = parts.scheme.as_ref().is_some_and(|it| ["http", "https"].contains(&it.as_str()));
    if !is_known || parts.authority.is_none() {
        return Err(fault());
    }
    let host = parts.authority.as_ref().map(http::uri::Authority::host).unwrap_or_default();
    check_host(source, text, host.trim_matches(['[', ']']))?;
    let has_path = parts.path_and_query.as_ref().is_some_and(|path| path.as_str() != "/");
    if !has_path {
        parts.path_and_query = Some(PathAndQuery::from_static(TRACES_PATH));
    }
    Uri::from_parts(parts).map_err(|_| fault())
}

fn read_headers(file: &Spanned<String>, source: &Source) -> Result<HeaderMap, ConfigError> {
    let bytes = read_file(file, source)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut headers = HeaderMap::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (index, line) in lines {
        let parsed = line.split_once(':').and_then(|(name, value)| {
            let mut value = HeaderValue::from_str(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
        });
        let Some((name, value)) = parsed else {
            // The line may be a secret.
            let message = format!("line {} of {} is no header", index + 1, file.get_ref());
            return Err(source.fault(file.span(), message, "write lines of `name: value`"));
        };
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    const LISTENER: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\n[[replica]]\nname = \"a\"\nurl = \"http://h:1\"\nmodels = [\"m\"]\n";

    fn parsed(lines: &str, folder: &Path) -> Result<Option<Box<TracesConfig>>, String> {
        let text = format!("{LISTENER}[traces]\n{lines}\n");
        let config = Config::parse(&text, &folder.join("file.toml"), []);
        config.map(|config| config.traces).map_err(|errors| errors.to_string())
    }

    #[test]
    fn an_endpoint_over_http_has_the_path_of_the_standard_unless_it_names_one() {
        let here = Path::new(".");
        assert_eq!(parsed("", here), Ok(None), "nothing is sent without an endpoint");
        for (lines, endpoint) in [
            ("endpoint = \"http://c:4318\"", "http://c:4318/v1/traces"),
            ("endpoint = \"https://c\"", "https://c/v1/traces"),
            ("endpoint = \"https://c/x/y\"", "https://c/x/y"),
        ] {
            let config = parsed(lines, here).unwrap().unwrap();
            assert_eq!(config.endpoint.to_string(), endpoint);
        }
        for endpoint in ["", "c:4317", "/v1", "ftp://c", "http://"] {
            let error = parsed(&format!("endpoint = {endpoint:?}"), here).unwrap_err();
            assert!(error.contains("is no address of a collector"), "{endpoint}: {error}");
            assert!(error.contains("file.toml:8:12"), "{endpoint}: {error}");
        }
    }

    #[test]
    fn headers_are_read_from_a_file_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        let lines = "endpoint = \"http://c\"\nheaders_file = \"headers\"";
        std::fs::write(&file, "x-team: s3cret\n\nAuthorization: Bearer a:b\n").unwrap();
        let config = parsed(lines, folder.path()).unwrap().unwrap();
        assert_eq!(config.headers["authorization"], "Bearer a:b");
        assert!(!format!("{config:?} {:?}", config.headers).contains("s3cret"));
        std::fs::write(&file, "x-team s3cret\n").unwrap();
        let error = parsed(lines, folder.path()).unwrap_err();
        assert!(error.contains("line 1 of headers is no header"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
