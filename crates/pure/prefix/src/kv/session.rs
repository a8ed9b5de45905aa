//! Ids of requests in the KV events of engines.

/// Text in front of the id, so that ids of clients are no ids of this project.
const PREFIX: &str = "sw-";

/// Returns the id of a request with these blocks: it is made of the last one, which represents the
/// whole chain. So all nodes that know the prompt know its events, whichever of them sent it.
/// `None` for a prompt without a full block.
#[must_use]
pub fn kv_session_id(chain: &[u64]) -> Option<String> {
    let end = chain.last()?;
    Some(format!("{PREFIX}{end:016x}"))
}

/// Returns the last block of the chain that an id was made of; `None` for ids of others.
#[must_use]
pub fn chain_end_of(session: &str) -> Option<u64> {
    let digits = session.strip_prefix(PREFIX).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_the_chain_and_those_of_clients_to_none() {
        for end in [0, 7, u64::MAX] {
            let id = kv_session_id(&[1, end]).unwrap();
            assert_eq!(chain_end_of(&id), Some(end));
        }
        assert_eq!(kv_session_id(&[]), None);
        for other in ["", "sw-", "sw-1", "0000000000000001", "sw-000000000000000g"] {
            assert_eq!(chain_end_of(other), None, "{other}");
        }
    }
}
