//! Messages on a connection: a length of four bytes, then as many bytes of postcard.

use crate::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const FRAME_LEN_MAX: u32 = 64 << 20;

pub(crate) async fn send<T: Serialize>(stream: &mut TcpStream, message: &T) -> Result<(), Failure> {
    let body = postcard::to_stdvec(message)?;
    let mut frame = u32::try_from(body.len())?.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    Ok(stream.write_all(&frame).await?)
}

pub(crate) async fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> Result<T, Failure> {
    let len = stream.read_u32_le().await?;
    if len > FRAME_LEN_MAX {
        return Err(format!("a message has {len} bytes; at most {FRAME_LEN_MAX} are read").into());
    }
    // Grows as bytes arrive: a length alone allocates nothing.
    let mut body = Vec::new();
    let read = stream.take(len.into()).read_to_end(&mut body).await?;
    if read < len as usize {
        return Err("a message ends too early".into());
    }
    Ok(postcard::from_bytes(&body)?)
}
