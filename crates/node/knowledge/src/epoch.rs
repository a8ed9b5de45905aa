//! Keys of epochs, with which prompts are hashed.

use highway::{HighwayHash, HighwayHasher, Key};

/// Derives the key of an epoch from the cluster's key: every node derives an equal one without
/// sending it, and no node can without the cluster's key. Epoch 0 has the cluster's key itself.
pub(crate) fn prompt_key(cluster: [u64; 4], epoch: u64) -> [u64; 4] {
    if epoch == 0 {
        return cluster;
    }
    let mut hasher = HighwayHasher::new(Key(cluster));
    hasher.append(b"spillway prefix key epoch");
    hasher.append(&epoch.to_le_bytes());
    hasher.finalize256()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_has_its_key_and_the_first_is_the_clusters() {
        let cluster = [1, 2, 3, 4];
        assert_eq!(prompt_key(cluster, 0), cluster);
        let (first, second) = (prompt_key(cluster, 1), prompt_key(cluster, 2));
        assert_ne!(first, cluster);
        assert_ne!(first, second);
        assert_ne!(first, prompt_key([1, 2, 3, 5], 1), "another cluster's");
    }

    #[test]
    fn keys_are_the_same_on_every_machine_and_in_every_version() {
        // Nodes of different versions have to agree: a changed value here is a rotation.
        assert_eq!(prompt_key([1, 2, 3, 4], 1), KEY_OF_EPOCH_1);
    }

    const KEY_OF_EPOCH_1: [u64; 4] = [
        13_405_017_626_198_999_640,
        1_110_878_929_409_203_413,
        4_402_716_437_448_447_390,
        11_095_402_989_104_807_220,
    ];
}
