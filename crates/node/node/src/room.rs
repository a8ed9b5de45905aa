//! Room on the file system of the data folder, for operators.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use spillway_admin::DataRoom;
use tokio::sync::Semaphore;

/// Time for a file system to answer. One on a network may take for ever.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// Source of the room in a data folder.
#[derive(Debug)]
pub(crate) struct Room {
    /// Data folder; `None` if the node has none.
    folder: Option<PathBuf>,
    /// Allows one look at a time, so that a file system that hangs holds up one thread only.
    looks: Arc<Semaphore>,
    /// Answer to the last look.
    last: Arc<ArcSwapOption<DataRoom>>,
}

impl Room {
    pub(crate) fn of(folder: Option<PathBuf>) -> Self {
        Self { folder, looks: Arc::new(Semaphore::new(1)), last: Arc::default() }
    }

    /// Returns the room in the data folder; `None` if there is no folder, or if its file system
    /// does not report it. While another look is under way, and after a look that takes too long,
    /// this is the last known room.
    pub(crate) async fn look(&self) -> Option<DataRoom> {
        if let (Some(folder), Ok(turn)) =
            (self.folder.clone(), Arc::clone(&self.looks).try_acquire_owned())
        {
            let last = Arc::clone(&self.last);
            let looking = tokio::task::spawn_blocking(move || {
                last.store(space_in(&folder).map(Arc::new));
                drop(turn);
            });
            drop(tokio::time::timeout(LOOK_LIMIT, looking).await);
        }
        self.last.load().as_deref().cloned()
    }
}

fn space_in(folder: &Path) -> Option<DataRoom> {
    let space = rustix::fs::statvfs(folder).ok()?;
    Some(DataRoom {
        folder: folder.display().to_string(),
        // Room that only the superuser may use is no room for the node.
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_has_room_and_no_folder_has_none() {
        let room = Room::of(Some(std::env::temp_dir())).look().await.unwrap();
        assert!(0 < room.total_bytes && room.free_bytes <= room.total_bytes, "{room:?}");
        assert_eq!(Room::of(None).look().await, None);
        assert_eq!(Room::of(Some("/no/such/folder".into())).look().await, None);
    }

    #[tokio::test]
    async fn while_a_look_hangs_the_answer_is_the_last_one() {
        let room = Room::of(Some(std::env::temp_dir()));
        let hanging = room.looks.acquire().await.unwrap();
        assert_eq!(room.look().await, None);
        drop(hanging);
        let seen = room.look().await;
        assert!(seen.is_some());
        let _hanging = room.looks.acquire().await.unwrap();
        assert_eq!(room.look().await, seen);
    }
}
