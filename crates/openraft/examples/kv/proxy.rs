//! The way from one member to another, which can be cut.

use crate::Failure;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A way that listens on a port of its own. While it is cut, it has no connections.
pub(crate) struct Way {
    pub(crate) address: String,
    cut: watch::Sender<bool>,
}

impl Way {
    pub(crate) async fn to(target: String) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (cut, watched) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !*watched.borrow() {
                    tokio::spawn(carry(stream, target.clone(), watched.clone()));
                }
            }
        });
        Ok(Self { address, cut })
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn carry(mut near: TcpStream, target: String, mut cut: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    let (_, _) = (near.set_nodelay(true), far.set_nodelay(true));
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        _ = cut.wait_for(|&cut| cut) => {}
    }
}
