//! Token files: tokens of the admin API, per node.

use spillway_cluster_state::{Hidden, key_hash};

use crate::config::{AdminRole, ConfigToken};

/// Most tokens in one file: one for each person or program that operates the cluster.
const TOKENS_MAX: usize = 256;
/// Shortest token, in bytes: a shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 24;
/// Longest token, in bytes: as long as a header reasonably is.
const TOKEN_BYTES_MAX: usize = 512;
/// Longest name, in bytes: as much as the audit trail takes.
const NAME_BYTES_MAX: usize = 64;
/// Prefix of a hash.
const HASH: &str = "sha256:";

/// Error for a line of a token file that can't be used. Never contains any part of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}: {remedy}")]
pub struct TokenFileError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Fault of the line.
    pub cause: String,
    /// Advice to the operator.
    pub remedy: &'static str,
}

/// Parses a token file. Each line is `name role token`. The role is `read`, `operate` or `admin`.
/// The third part is the token itself, or `sha256:` and the token's hash in hexadecimal, as
/// `printf %s TOKEN | sha256sum` prints it. Empty lines and lines that begin with `#` are ignored.
///
/// # Errors
/// Returns an error for the first line that has another form.
pub fn parse_token_file(text: &str) -> Result<Vec<ConfigToken>, TokenFileError> {
    let mut tokens: Vec<ConfigToken> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let fault = |(cause, remedy)| TokenFileError { line: at + 1, cause, remedy };
        let token = parse_line(line_text).map_err(fault)?;
        // Two tokens of one name would be one person in the audit trail.
        if tokens.iter().any(|known| known.name == token.name || known.hash == token.hash) {
            let cause = format!("the name or the token of {:?} stands here twice", token.name);
            return Err(fault((cause, "give each its own")));
        }
        if tokens.len() == TOKENS_MAX {
            let cause = format!("there are more than {TOKENS_MAX} tokens");
            return Err(fault((cause, "make keys of the cluster for the others")));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

type Wrong = (String, &'static str);

fn parse_line(line: &str) -> Result<ConfigToken, Wrong> {
    let parts: Vec<&str> = line.split_whitespace().collect();
    let [name, role, token] = parts[..] else {
        return Err(("it has not three parts".to_owned(), "write `name role token`"));
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let remedy = "use up to 64 letters, digits, hyphens, underscores, dots and @";
        return Err(("the name can't be used".to_owned(), remedy));
    }
    let role = AdminRole::find(role)
        .ok_or_else(|| ("there is no such role".to_owned(), "use read, operate or admin"))?;
    Ok(ConfigToken { name: name.to_owned(), role, hash: hash(token)? })
}

fn hash(token: &str) -> Result<Hidden, Wrong> {
    if let Some(digits) = token.strip_prefix(HASH) {
        let read = serde_json::from_value(serde_json::Value::from(digits));
        let wrong = |_| ("the hash can't be read".to_owned(), "write 64 hexadecimal digits");
        return read.map_err(wrong);
    }
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        let (bytes, bound) = (
            token.len(),
            match token.len() {
                ..TOKEN_BYTES_MIN => format!("short: it has {TOKEN_BYTES_MIN} at least"),
                _ => format!("long: it has {TOKEN_BYTES_MAX} at most"),
            },
        );
        let cause = format!("a token of {bytes} bytes is too {bound}");
        return Err((cause, "use 32 random bytes, e.g. of `openssl rand -hex 32`"));
    }
    Ok(key_hash(&[], token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef01234567";

    #[test]
    fn a_token_and_its_hash_are_the_same() {
        let plain = parse_token_file(&format!("# people\n\n ada admin {TOKEN}\n")).unwrap();
        assert_eq!(plain[0].name, "ada");
        assert_eq!(plain[0].role, AdminRole::Admin);
        let digits: String =
            plain[0].hash.reveal().iter().map(|byte| format!("{byte:02x}")).collect();
        let hashed = parse_token_file(&format!("ada admin sha256:{digits}")).unwrap();
        assert_eq!(hashed, plain);
    }

    #[test]
    fn so_many_tokens_are_taken_and_no_more() {
        let lines = |count: usize| {
            (0..count).map(|at| format!("n{at} read {TOKEN}{at}\n")).collect::<String>()
        };
        assert_eq!(parse_token_file(&lines(TOKENS_MAX)).unwrap().len(), TOKENS_MAX);
        let fault = parse_token_file(&lines(TOKENS_MAX + 1)).unwrap_err();
        assert_eq!(fault.line, TOKENS_MAX + 1);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_token() {
        let twice = format!("ada admin {TOKEN}\nbob read {TOKEN}");
        let cases = [
            (1, format!("ada {TOKEN}")),
            (2, format!("\nada boss {TOKEN}")),
            (1, "ada admin 0123456789abcdef".to_owned()),
            (1, "ada admin sha256:12".to_owned()),
            (1, format!("a/b admin {TOKEN}")),
            (2, format!("ada admin {TOKEN}\nada read x{TOKEN}")),
            (2, twice),
        ];
        for (line, text) in cases {
            let fault = parse_token_file(&text).unwrap_err();
            assert_eq!(fault.line, line, "{text}");
            assert!(!fault.to_string().contains("0123456789abcdef"), "{fault}");
        }
    }
}
