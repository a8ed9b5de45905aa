//! Splits a PEM file into its certificates without a change of a byte.

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Returns each certificate of a PEM text with its first and last line; text between certificates
/// is left out.
pub(super) fn certificate_blocks(pem: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = pem;
    while let Some((_, from)) = rest.split_once(BEGIN) {
        let Some((body, after)) = from.split_once(END) else { break };
        blocks.push(format!("{BEGIN}{body}{END}\n"));
        rest = after;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_taken_apart_and_comments_left_out() {
        let block = |body: &str| format!("{BEGIN}\n{body}\n{END}\n");
        let text = format!("subject=old\n{}\nsubject=new\n{}end", block("AA"), block("BB"));
        assert_eq!(certificate_blocks(&text), [block("AA"), block("BB")]);
        assert_eq!(certificate_blocks(&format!("{BEGIN}\nAA\n")), [""; 0], "no end");
        assert_eq!(certificate_blocks(""), [""; 0]);
    }
}
