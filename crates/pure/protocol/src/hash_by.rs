//! Keys of requests: the part of a request by which related requests reach one replica.

use std::borrow::Cow;
use std::net::IpAddr;
use std::str::FromStr;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use thiserror::Error;

/// Default number of prompt blocks that count: 1 KiB with blocks of 256 bytes. This is most of a
/// usual system prompt, and little enough for the turns of a conversation to share it.
const PROMPT_BLOCKS: usize = 4;

/// Part of a request that a route hashes by, as in the config: `user`, `header:x-user`, ...
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum HashBy {
    /// Value `header:NAME`: the first value of a header.
    Header(HeaderName),
    /// Value `cookie:NAME`: the value of a cookie; names are case-sensitive.
    Cookie(String),
    /// Value `user`: the JSON body's field `user`.
    User,
    /// Value `client_ip`: the client's address, seen through trusted proxies only.
    ClientIp,
    /// Value `conversation`: the user, or else the client's address.
    ///
    /// The id of a response that the request continues is no part of the key. If its replica is
    /// known, the request goes there under any policy. If not, each turn has another id, while the
    /// user's key leads to the replica where the conversation began.
    Conversation,
    /// Value `prompt_prefix` or `prompt_prefix:BLOCKS`: the beginning of the prompt, up to this
    /// number of blocks.
    PromptPrefix(usize),
}

/// Parts of a request that a key can be taken from.
#[derive(Clone, Copy, Debug)]
pub struct KeySources<'r> {
    /// Headers of the request.
    pub headers: &'r HeaderMap,
    /// Field `user` of the body; `None` if absent, or if the body is not read.
    pub user: Option<&'r str>,
    /// Address of the client.
    pub client: IpAddr,
}

/// Key of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKey<'r> {
    /// Bytes of the key, never empty.
    Bytes(Cow<'r, [u8]>),
    /// Blocks of the prompt up to this number, at least 1, or all full blocks if there are fewer.
    PromptBlocks(usize),
}

impl HashBy {
    /// Returns the key of a request; `None` if it has none.
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
        // An empty value would send all requests that have it to the same replica.
        bytes.filter(|bytes| !bytes.is_empty()).map(RequestKey::Bytes)
    }

    /// Returns true if the key is in the body, so that a request whose body is not read has none.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        matches!(self, Self::User | Self::PromptPrefix(_))
    }
}

impl FromStr for HashBy {
    type Err = UnknownHashByError;

    fn from_str(text: &str) -> Result<Self, UnknownHashByError> {
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
        parsed.ok_or_else(|| UnknownHashByError(text.to_owned()))
    }
}

impl TryFrom<String> for HashBy {
    type Error = UnknownHashByError;

    fn try_from(text: String) -> Result<Self, UnknownHashByError> {
        text.parse()
    }
}

/// Error: a text names no key that a route can hash by.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "can't hash by {0:?}, expected header:NAME, cookie:NAME, user, client_ip, conversation, \
     prompt_prefix or prompt_prefix:BLOCKS"
)]
pub struct UnknownHashByError(String);

/// Returns the value of the first cookie of this name. HTTP/2 clients may send a header for each
/// cookie.
#[must_use]
pub fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<&'r [u8]> {
    headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .find_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Returns the address, for IPv6 only its network: hosts change the rest at will.
fn network(client: IpAddr) -> Cow<'static, [u8]> {
    Cow::Owned(match client.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    })
}

/// Returns true if `name` can be a cookie's name, which has the same characters as a header's name.
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
            assert_eq!(parse(text), Err(UnknownHashByError(text.to_owned())));
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
