//! gRPC as far as a gateway needs it: the called method, the model in a message, the ends of
//! messages, and the form of errors.
//!
//! Messages stay bytes. Only two fields of the first message are read, by hand: generated types
//! would copy every tensor, and would tie the gateway to one version of each service.

mod answer;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod messages;
mod method;
mod parameters;
mod peek;
mod status;
mod timeout;
mod walk;
mod wire;

pub use answer::{
    Serving, health_answer, health_service, server_flag_answer, server_metadata_answer,
};
pub use messages::{MODEL_BYTES_MAX, MessageError, Messages};
pub use method::{GrpcMethod, speaks_grpc};
pub use peek::{ModelRef, Peek, check_parameters, peek_model, read_model, rewrite_model};
pub use status::{
    GRPC_ACCEPT_ENCODING, GRPC_MESSAGE, GRPC_STATUS, GrpcStatus, reply_fault, status_in,
    status_lacks_model, trailers_of,
};
pub use timeout::{GRPC_TIMEOUT, format_timeout, parse_timeout};

/// Bytes in front of each message: a flag for compression, and the length.
pub const FRAME_HEAD_BYTES: usize = 5;
