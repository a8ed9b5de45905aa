//! Which part of a request says what it belongs together with.

use std::borrow::Cow;
use std::net::IpAddr;
use std::str::FromStr;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use thiserror::Error;

/// Blocks of prompt that count unless the config says otherwise: 1 KiB with blocks of 256 bytes,
/// which is most of a usual system prompt, and little enough that conversations share it.
const PROMPT_BLOCKS: usize = 4;

/// What a route hashes by, as the config has it: `user`, `header:x-user`, ...
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum HashBy {
    /// `header:NAME`: the first value of a header.
    Header(HeaderName),
    /// `cookie:NAME`: the value of a cookie; names are compared with regard to case.
    Cookie(String),
    /// `user`: the JSON body's field of that name.
    User,
    /// `client_ip`: the client's address, seen through trusted proxies only.
    ClientIp,
    /// `conversation`: the user, else the client's address.
    ///
    /// The id of a response that the request continues is no part of it: where its replica is
    /// known the request goes there whatever the policy, and where it is not, each turn has an id
    /// of its own, while the user's key leads to where the conversation began.
    Conversation,
    /// `prompt_prefix` or `prompt_prefix:BLOCKS`: how the prompt begins, up to so many blocks.
    PromptPrefix(usize),
}

/// What there is to choose a key from.
#[derive(Clone, Copy, Debug)]
pub struct KeySources<'r> {
    /// The request's headers.
    pub headers: &'r HeaderMap,
    /// The body's user field, if the body is read.
    pub user: Option<&'r str>,
    /// The client's address.
    pub client: IpAddr,
}

/// The key of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKey<'r> {
    /// These bytes, never empty.
    Bytes(Cow<'r, [u8]>),
    /// The prompt up to this block, at least 1, or up to its last full one.
    PromptBlocks(usize),
}

impl HashBy {
    /// The key of a request; `None` if it has none.
    #[must_use]
    pub fn key<'r>(&self, sources: KeySources<'r>) -> Option<RequestKey<'r>> {
        let user = || sources.user.map(|user| Cow::Borrowed(user.as_bytes()));
        let bytes = match self {
            Self::Header(name) => {
                sources.headers.get(name).map(|value| Cow::Borrowed(value.as_bytes()))
            }
            Self::Cookie(name) => cookie(sources.headers, name).map(Cow::Borrowed),
            Self::User => user(),
            Self::ClientIp => Some(network(sources.client)),
            Self::Conversation => {
                user().filter(|user| !user.is_empty()).or_else(|| Some(network(sources.client)))
            }
            Self::PromptPrefix(blocks) => return Some(RequestKey::PromptBlocks(*blocks)),
        };
        bytes.filter(|bytes| !bytes.is_empty()).map(RequestKey::Bytes)
    }

    /// Whether the key stands in the body, so that there is none where bodies are not read.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        matches!(self, Self::User | Self::PromptPrefix(_))
    }
}

impl FromStr for HashBy {
    type Err = UnknownHashBy;

    fn from_str(text: &str) -> Result<Self, UnknownHashBy> {
        let parsed = match text.split_once(':') {
            None => match text {
                "user" => Some(Self::User),
                "client_ip" => Some(Self::ClientIp),
                "conversation" => Some(Self::Conversation),
                "prompt_prefix" => Some(Self::PromptPrefix(PROMPT_BLOCKS)),
                _ => None,
            },
            Some(("header", name)) => name.parse().ok().map(Self::Header),
            Some(("cookie", name)) => is_token(name).then(|| Self::Cookie(name.to_owned())),
            Some(("prompt_prefix", blocks)) => {
                blocks.parse().ok().filter(|blocks| *blocks > 0).map(Self::PromptPrefix)
            }
            Some(_) => None,
        };
        parsed.ok_or_else(|| UnknownHashBy(text.to_owned()))
    }
}

impl TryFrom<String> for HashBy {
    type Error = UnknownHashBy;

    fn try_from(text: String) -> Result<Self, UnknownHashBy> {
        text.parse()
    }
}

/// Not a key that a route can hash by.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "can't hash by {0:?}, expected header:NAME, cookie:NAME, user, client_ip, conversation, \
     prompt_prefix or prompt_prefix:BLOCKS"
)]
pub struct UnknownHashBy(String);

/// The value of the first cookie of this name. HTTP/2 clients may send a header for each cookie.
#[must_use]
pub fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<&'r [u8]> {
    headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .find_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The address, of IPv6 only the network: hosts change the rest as often as they like.
fn network(client: IpAddr) -> Cow<'static, [u8]> {
    Cow::Owned(match client.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    })
}

/// Whether it can be the name of a cookie; header names are made of the same characters.
fn is_token(name: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hash_by: &str, lines: &[(&'static str, &str)], user: Option<&str>) -> Option<Vec<u8>> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let client = "192.0.2.7".parse().unwrap();
        let sources = KeySources { headers: &headers, user, client };
        match hash_by.parse::<HashBy>().unwrap().key(sources)? {
            RequestKey::Bytes(bytes) => Some(bytes.into_owned()),
            RequestKey::PromptBlocks(blocks) => panic!("{blocks} blocks"),
        }
    }

    #[test]
    fn every_form_is_read_and_nothing_else() {
        let parse = |text: &str| text.parse::<HashBy>();
        assert_eq!(parse("header:X-User"), Ok(HashBy::Header("x-user".parse().unwrap())));
        assert_eq!(parse("cookie:Session"), Ok(HashBy::Cookie("Session".to_owned())));
        assert_eq!(parse("user"), Ok(HashBy::User));
        assert_eq!(parse("client_ip"), Ok(HashBy::ClientIp));
        assert_eq!(parse("conversation"), Ok(HashBy::Conversation));
        assert_eq!(parse("prompt_prefix"), Ok(HashBy::PromptPrefix(4)));
        assert_eq!(parse("prompt_prefix:16"), Ok(HashBy::PromptPrefix(16)));
        for text in [
            "",
            "User",
            "user:x",
            "header",
            "header:",
            "header:a b",
            "cookie:",
            "cookie:a=b",
            "cookie:a;b",
            "prompt_prefix:",
            "prompt_prefix:0",
            "prompt_prefix:-1",
            " user",
        ] {
            assert_eq!(parse(text), Err(UnknownHashBy(text.to_owned())));
        }
    }

    #[test]
    fn a_header_gives_its_first_value() {
        let lines = [("x-user", "a"), ("x-user", "b")];
        assert_eq!(key("header:X-User", &lines, None).unwrap(), b"a");
        assert_eq!(key("header:x-other", &lines, None), None);
        assert_eq!(key("header:x-user", &[("x-user", "")], None), None);
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name_in_any_header() {
        let lines = [("cookie", "xs=1; ss=2;s=3=4 ; s=5"), ("cookie", "t=6")];
        assert_eq!(key("cookie:s", &lines, None).unwrap(), b"3=4");
        assert_eq!(key("cookie:t", &lines, None).unwrap(), b"6");
        assert_eq!(key("cookie:S", &lines, None), None);
        assert_eq!(key("cookie:s", &[("cookie", "s=; x=1")], None), None);
    }

    #[test]
    fn a_conversation_is_the_user_s_and_else_the_address_s() {
        assert_eq!(key("user", &[], Some("u")).unwrap(), b"u");
        assert_eq!(key("user", &[], None), None);
        assert_eq!(key("user", &[], Some("")), None);
        assert_eq!(key("conversation", &[], Some("u")).unwrap(), b"u");
        assert_eq!(key("conversation", &[], None).unwrap(), [192, 0, 2, 7]);
        assert_eq!(key("conversation", &[], Some("")).unwrap(), [192, 0, 2, 7]);
        assert_eq!(key("client_ip", &[], Some("u")).unwrap(), [192, 0, 2, 7]);
    }

    #[test]
    fn an_address_is_one_client_s_in_each_of_its_forms() {
        let network = |text: &str| network(text.parse().unwrap()).into_owned();
        assert_eq!(network("::ffff:192.0.2.7"), [192, 0, 2, 7]);
        assert_eq!(network("2001:db8:1:2:aaaa::1"), network("2001:db8:1:2:bbbb::9"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    }
}
