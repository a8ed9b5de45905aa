//! Takes a request's body in, within bounds of size, memory and time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::ShedReason;
use tokio::time::{Instant as Moment, timeout, timeout_at};

use crate::body_room::{BodyReservation, NoRoom};
use crate::client::BodyHolder;
use crate::gateway::Gateway;
use crate::wire_body::{WireBody, WireError};

/// Bytes of a refused body that are read for nothing, and for how long.
pub(crate) const DISCARDED_BYTES_MAX: u64 = 1 << 20;
pub(crate) const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);
/// Room that is made for a body at once, whatever length its sender claims.
const FIRST_ROOM_MAX: usize = 256 << 10;
/// And at most so many times what is there: many that announce much and send little take little.
const ROOM_FACTOR: usize = 8;
/// How much larger the buffer of an announced body becomes at a time: each step leaves the smaller one
/// to the allocator.
const ANNOUNCED_GROWTH: usize = 4;
/// A body in one piece of at most this length is copied: it may be a small slice of a large read buffer,
/// which it would keep in memory.
const COPIED_BYTES_MAX: usize = 1 << 10;
/// How often a body that makes no progress asks whether memory is full.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

/// A whole body in memory.
#[derive(Debug)]
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    /// How long its last byte was waited for.
    pub(crate) wait: Duration,
    /// Counts the memory; to be kept as long as the bytes are.
    pub(crate) reservation: Option<BodyReservation>,
}

/// Reads a body to its end. One that arrives in one piece is not copied; a longer one is gathered
/// once.
///
/// # Errors
/// If it is too large, too slow, breaks off, or memory for bodies is used up, by all or by `holder`.
pub(crate) async fn buffer(
    gateway: &Arc<Gateway>,
    holder: Option<BodyHolder>,
    mut body: WireBody,
) -> Result<Buffered, GatewayError> {
    let limits = gateway.limits();
    let started = Instant::now();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut reservation = BodyReservation::new(gateway, holder);
    let mut gathered = Gathered::default();
    let due = (started + limits.body_timeout).into();
    while let Some(frame) = next_frame(&mut body, due, &reservation).await.transpose() {
        let frame = match frame {
            Ok(frame) => frame,
            Err(Stopped::Broken(error)) => return Err(broken(&error)),
            Err(Stopped::TooSlow) => return Err(too_slow(limits.body_timeout)),
            Err(Stopped::NoRoom(no_room)) => {
                drop((gathered, reservation));
                return Err(refuse_rest(body, no_room).await);
            }
        };
        // Trailers of a request mean nothing to any protocol spoken here.
        let Ok(piece) = frame.into_data() else { continue };
        let whole = gathered.len() + piece.len();
        if let Err(error) = refuse_oversize(whole as u64, limits.body_bytes_max) {
            discard(body).await;
            return Err(error);
        }
        // Before the memory is taken, or it would be there for a moment without being counted.
        let held = gathered.held_with(piece.len(), announced);
        if let Err(no_room) = reservation.grow_to(held as u64) {
            drop((gathered, piece, reservation));
            return Err(refuse_rest(body, no_room).await);
        }
        gathered.add(piece, held);
        if body.is_end_stream() {
            break;
        }
    }
    let bytes = gathered.into_bytes();
    Ok(Buffered { bytes, wait: started.elapsed(), reservation: Some(reservation) })
}

/// Why the next piece of a body is not waited for.
#[derive(Debug)]
enum Stopped {
    Broken(WireError),
    TooSlow,
    NoRoom(NoRoom),
}

/// Waits for the next frame until `due`, or until memory is full.
async fn next_frame(
    body: &mut WireBody,
    due: Moment,
    reservation: &BodyReservation,
) -> Result<Option<Frame<Bytes>>, Stopped> {
    loop {
        let look = due.min(Moment::now() + MEMORY_LOOK);
        match timeout_at(look, body.frame()).await {
            Ok(next) => return next.transpose().map_err(Stopped::Broken),
            Err(_) if look == due => return Err(Stopped::TooSlow),
            Err(_) => reservation.check().map_err(Stopped::NoRoom)?,
        }
    }
}

/// Ends a body that there is no room for, so that its client reads why.
async fn refuse_rest(body: WireBody, no_room: NoRoom) -> GatewayError {
    discard(body).await;
    no_memory(no_room)
}

/// Refuses a body that announces more than is allowed, before anything of it is read.
///
/// # Errors
/// If it does.
pub(crate) async fn refuse_announced(
    body: WireBody,
    headers: &HeaderMap,
    bytes_max: u64,
) -> Result<WireBody, GatewayError> {
    let Err(error) = refuse_oversize(body.size_hint().lower(), bytes_max) else {
        return Ok(body);
    };
    // Who waits for 100 Continue sends nothing, and reading would tell it to.
    if !headers.contains_key(header::EXPECT) {
        discard(body).await;
    }
    Err(error)
}

/// Lets a refused client finish sending, within bounds. Closing a connection on bytes that nobody
/// read resets it, and the client may never see what it was told. Returns whether it has finished.
pub(crate) async fn discard(mut body: WireBody) -> bool {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            if bytes > DISCARDED_BYTES_MAX || body.is_end_stream() {
                break;
            }
        }
        body.is_end_stream()
    };
    timeout(DISCARD_TIME_MAX, reading).await.unwrap_or(false)
}

/// Pieces of a body: the first is kept as it is until a second comes, then all are copied into one
/// buffer, so that tiny pieces cost no more than their bytes.
#[derive(Debug, Default)]
enum Gathered {
    #[default]
    Nothing,
    One(Bytes),
    Many(Vec<u8>),
}

impl Gathered {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    /// Bytes of memory that are held once a piece of so many bytes is added, of a body that announced
    /// so many. A buffer grows in steps, but never beyond what was announced.
    fn held_with(&self, piece: usize, announced: usize) -> usize {
        let there = self.len() + piece;
        match self {
            Self::Nothing => there,
            Self::One(_) => announced.min(FIRST_ROOM_MAX).min(there * ROOM_FACTOR).max(there),
            Self::Many(bytes) if there <= bytes.capacity() => bytes.capacity(),
            Self::Many(bytes) if there <= announced => {
                bytes.capacity().saturating_mul(ANNOUNCED_GROWTH).min(announced).max(there)
            }
            Self::Many(bytes) => bytes.capacity().saturating_mul(2).max(there),
        }
    }

    /// Adds a piece; `held` is what [`Gathered::held_with`] says of it.
    fn add(&mut self, piece: Bytes, held: usize) {
        *self = match std::mem::take(self) {
            Self::Nothing if piece.len() <= COPIED_BYTES_MAX => {
                Self::One(Bytes::copy_from_slice(&piece))
            }
            Self::Nothing => Self::One(piece),
            Self::One(first) => {
                let mut all = Vec::with_capacity(held);
                all.extend_from_slice(&first);
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.reserve_exact(held - all.len());
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.into(),
        }
    }
}

/// Refuses a body of at least `bytes`.
///
/// # Errors
/// If that is more than `bytes_max`.
pub(crate) fn refuse_oversize(bytes: u64, bytes_max: u64) -> Result<(), GatewayError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("the request body is larger than the {bytes_max} bytes allowed here");
    Err(GatewayError::new(ErrorKind::BodyTooLarge, message))
}

pub(crate) fn too_slow(bound: Duration) -> GatewayError {
    let message = format!("the request body did not arrive within {} s", bound.as_secs_f32());
    GatewayError::new(ErrorKind::BodyTimeout, message)
}

fn broken(error: &WireError) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("the request body is broken: {error}"))
}

fn no_memory(no_room: NoRoom) -> GatewayError {
    let (kind, message) = match no_room {
        NoRoom::All => {
            (ErrorKind::Overloaded, "this node holds all the request bodies it may; try again")
        }
        NoRoom::Client => (
            ErrorKind::RateLimited,
            "this node holds as many of this client's request bodies as it may; wait for replies",
        ),
    };
    GatewayError::new(kind, message).with_shed(ShedReason::Memory.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(pieces: impl Iterator<Item = usize>, announced: usize) -> (usize, usize) {
        let mut gathered = Gathered::default();
        let mut held = 0;
        for piece in pieces {
            held = gathered.held_with(piece, announced);
            gathered.add(Bytes::from(vec![7; piece]), held);
            if let Gathered::Many(bytes) = &gathered {
                assert!(bytes.capacity() <= held, "{} of {held}", bytes.capacity());
            }
        }
        (held, gathered.into_bytes().len())
    }

    #[test]
    fn tiny_pieces_hold_no_more_than_twice_their_bytes() {
        let (held, length) = gather(std::iter::repeat_n(1, 100_000), 0);
        assert_eq!(length, 100_000);
        assert!(held < 200_000, "{held}");
    }

    #[test]
    fn an_announced_body_holds_just_its_length() {
        for pieces in [vec![16 << 10; 64], vec![1000; 1049]] {
            let whole: usize = pieces.iter().sum();
            assert_eq!(gather(pieces.into_iter(), whole), (whole, whole));
        }
    }

    #[test]
    fn what_is_announced_and_not_sent_is_not_held() {
        let (held, _) = gather([10, 10].into_iter(), 32 << 20);
        assert_eq!(held, 160);
    }
}
