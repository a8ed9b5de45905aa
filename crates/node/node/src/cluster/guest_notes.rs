//! Notes on a forwarded request, in a header: the usage that its sender wants of the stream, the
//! number of engines that died with the request, and the client's name for the model. They are in a header because a node of an older
//! version refuses a request whose head has more fields than it knows. A node that does not know the
//! header asks its replica for no usage on behalf of the sender.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use spillway_types::ModelName;
use spillway_view::{InjectUsage, WantedUsage};

/// Header with notes, separated by semicolons: `usage=` with `never`, `auto` or `always`; `followed`
/// if the stream may be continued elsewhere; `deaths=` with a number; `named=` with an escaped name.
/// Readers skip other notes. Only between nodes.
static NOTES: HeaderName = HeaderName::from_static("x-spillway-notes");

/// Notes of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GuestNotes {
    /// Usage that the sender wants of the stream.
    pub(super) usage: Option<WantedUsage>,
    /// Number of engines that died while they served the request.
    pub(super) deaths: u8,
    /// Name by which the client asked for the model, if another node needs it.
    pub(super) named: Option<ModelName>,
}

impl GuestNotes {
    /// Writes the notes into the headers; without notes the header is removed.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        headers.remove(&NOTES);
        let mut notes = Vec::new();
        if let Some(WantedUsage { inject, is_followed }) = self.usage {
            notes.push(format!("usage={}", name(inject)));
            notes.extend(is_followed.then(|| "followed".to_owned()));
        }
        notes.extend((self.deaths > 0).then(|| format!("deaths={}", self.deaths)));
        let escaped =
            |name: &ModelName| utf8_percent_encode(name.as_str(), NON_ALPHANUMERIC).to_string();
        notes.extend(self.named.as_ref().map(|name| format!("named={}", escaped(name))));
        // Names and numbers are valid in any header.
        if let Some(value) =
            (!notes.is_empty()).then(|| HeaderValue::try_from(notes.join(";")).ok()).flatten()
        {
            headers.insert(NOTES.clone(), value);
        }
    }

    /// Removes the header, which replicas need not see, and returns its notes. What can't be read is
    /// left out.
    pub(super) fn take(headers: &mut HeaderMap) -> Self {
        let Some(value) = headers.remove(&NOTES) else { return Self::default() };
        let text = value.to_str().unwrap_or_default();
        let notes = || text.split(';');
        let after = |prefix: &'static str| notes().find_map(|note| note.strip_prefix(prefix));
        let inject = after("usage=").and_then(inject);
        let is_followed = notes().any(|note| note == "followed");
        let named =
            |name: &str| percent_decode_str(name).decode_utf8().ok().map(|it| (&*it).into());
        Self {
            usage: inject.and_then(|inject| WantedUsage::new(inject, is_followed)),
            deaths: after("deaths=").and_then(|deaths| deaths.parse().ok()).unwrap_or_default(),
            named: after("named=").and_then(named),
        }
    }
}

fn name(inject: InjectUsage) -> &'static str {
    match inject {
        InjectUsage::Never => "never",
        InjectUsage::Auto => "auto",
        InjectUsage::Always => "always",
    }
}

fn inject(name: &str) -> Option<InjectUsage> {
    [InjectUsage::Never, InjectUsage::Auto, InjectUsage::Always]
        .into_iter()
        .find(|inject| self::name(*inject) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> GuestNotes {
        let mut headers = HeaderMap::new();
        headers.insert(NOTES.clone(), HeaderValue::from_str(text).unwrap());
        let notes = GuestNotes::take(&mut headers);
        assert!(headers.is_empty());
        notes
    }

    #[test]
    fn notes_arrive_as_they_were_sent_and_leave_no_header() {
        for (inject, is_followed, text) in [
            (InjectUsage::Never, true, "usage=never;followed;deaths=1"),
            (InjectUsage::Auto, false, "usage=auto;deaths=1"),
            (InjectUsage::Always, true, "usage=always;followed;deaths=1"),
        ] {
            let usage = WantedUsage::new(inject, is_followed);
            let notes = GuestNotes { usage, deaths: 1, ..GuestNotes::default() };
            let mut headers = HeaderMap::new();
            // A header of a client counts for nothing.
            headers.insert(NOTES.clone(), HeaderValue::from_static("deaths=9"));
            notes.put(&mut headers);
            assert_eq!(headers[&NOTES], text);
            assert_eq!(GuestNotes::take(&mut headers), notes);
            assert!(headers.is_empty());
        }
        let named = GuestNotes { named: Some("größe=L;1".into()), ..GuestNotes::default() };
        let mut headers = HeaderMap::new();
        named.put(&mut headers);
        assert_eq!(GuestNotes::take(&mut headers), named);
        headers.insert(NOTES.clone(), HeaderValue::from_static("deaths=9"));
        GuestNotes::default().put(&mut headers);
        assert!(headers.is_empty());
        assert_eq!(GuestNotes::take(&mut headers), GuestNotes::default());
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        for text in ["", "usage=often", "usage", "deaths=300", "deaths=-1", "usage=never", "x;y=z"]
        {
            assert_eq!(read(text), GuestNotes::default(), "{text}");
        }
        let usage = WantedUsage::new(InjectUsage::Auto, false);
        assert_eq!(read("new=1;usage=auto;deaths=2"), GuestNotes { usage, deaths: 2, named: None });
    }
}
