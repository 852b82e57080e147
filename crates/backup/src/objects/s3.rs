//! Objects of a bucket, by S3's protocol.
//!
//! Requests run on a runtime of one thread, the caller's. Signatures are made with `sha2`, and TLS
//! with `graviola`, so that nothing of C is built.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error as Failure, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use qpair_engine::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};
use tokio::runtime::{Builder, Runtime};

use super::{Object, Objects};

/// The address at which instances of clouds are told their access.
const INSTANCE: &str = "169.254.169.254";
/// How often the crate repeats a request, and for how long. A backup repeats its steps itself, and
/// tells people.
const RETRIES_MAX: usize = 3;
const RETRY_FOR: Duration = Duration::from_secs(10);

/// A bucket of an object store, and the beginning of all names in it.
pub struct S3 {
    store: AmazonS3,
    bucket: String,
    prefix: String,
    runtime: Mutex<Runtime>,
}

impl S3 {
    /// Opens a bucket with the access that the environment has.
    ///
    /// # Errors
    /// As [`S3::open`].
    pub fn from_environment(bucket: &str, prefix: &str) -> Result<Self> {
        let all = std::env::vars_os();
        let all = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let ours = all.filter(|(name, _)| name.starts_with("AWS_"));
        Self::open(bucket, prefix, ours.filter_map(|(k, v)| Some((k, v.into_string().ok()?))))
    }

    /// Opens a bucket. The settings are those of the crate `object_store`: `AWS_REGION`,
    /// `AWS_ENDPOINT_URL` and others; those that it does not know are ignored.
    ///
    /// # Errors
    /// `Invalid` if a setting or the name of the bucket is not valid.
    pub fn open(
        bucket: &str,
        prefix: &str,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let invalid = |error: &dyn fmt::Display| {
            Error::with_hint(
                ErrorKind::Invalid,
                format!("the bucket {bucket} cannot be opened: {error}"),
                "name s3://BUCKET/PREFIX, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, unless it is Amazon's, AWS_ENDPOINT_URL",
            )
        };
        if bucket.is_empty() {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                "the URL names no bucket",
                "name s3://BUCKET/PREFIX",
            ));
        }
        let mut builder = AmazonS3Builder::new();
        for (name, value) in settings {
            // An address that says http is meant so.
            let is_plain = name.starts_with("AWS_ENDPOINT") && value.starts_with("http://");
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
            if is_plain {
                builder = builder.with_allow_http(true);
            }
        }
        // The second of two callers finds it installed.
        let _ = rustls_graviola::default_provider().install_default();
        let backoff = BackoffConfig { max_backoff: Duration::from_secs(1), ..Default::default() };
        let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_FOR };
        let store = builder
            .with_bucket_name(bucket)
            .with_retry(retry)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_crypto_provider(Arc::new(RustCrypto))
            .build()
            .map_err(|error| invalid(&error))?;
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| invalid(&error))?;
        // As it is in listings.
        let mut prefix = Path::from(prefix).to_string();
        if !prefix.is_empty() {
            prefix.push('/');
        }
        Ok(Self { store, bucket: bucket.to_owned(), prefix, runtime: Mutex::new(runtime) })
    }

    fn run<T>(
        &self,
        doing: &str,
        name: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(request).map_err(|error| {
            let why = cause(&error);
            let what = format!("{doing} {name} in {}: {why}", self.place());
            match way_out(&error, &why) {
                (kind, None) => Error::new(kind, what),
                (kind, Some(hint)) => Error::with_hint(kind, what, hint),
            }
        })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.prefix))
    }
}

/// Returns the kind of an error for programs, and what people can do about it.
fn way_out(error: &Failure, why: &str) -> (ErrorKind, Option<&'static str>) {
    let rights = "the access key needs the rights s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject";
    match error {
        // Not the absence of an object.
        _ if why.contains("NoSuchBucket") => {
            (ErrorKind::Invalid, Some("make the bucket, or name one that is there"))
        }
        _ if why.contains(INSTANCE) => (
            ErrorKind::Denied,
            Some(
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: no access is configured, and this machine is no instance of a cloud that has one",
            ),
        ),
        Failure::NotFound { .. } => (ErrorKind::NotFound, None),
        Failure::AlreadyExists { .. } | Failure::Precondition { .. } => (ErrorKind::Exists, None),
        Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
            (ErrorKind::Denied, Some(rights))
        }
        Failure::NotImplemented { .. } | Failure::NotSupported { .. } => (
            ErrorKind::Unsupported,
            Some("use an object store with conditional puts (If-None-Match)"),
        ),
        _ => (
            ErrorKind::Io,
            Some("look at AWS_ENDPOINT_URL, AWS_REGION and the network, and run the command again"),
        ),
    }
}

/// Returns the cause of an error: the code and message of the server's answer, or the last error of
/// the chain.
fn cause(error: &Failure) -> String {
    let text = error.to_string();
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once('<')?.0)
    };
    if let Some(code) = element("Code") {
        return format!("{code}: {}", element("Message").unwrap_or("the server refuses"));
    }
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let last = last.to_string();
    match text.contains(INSTANCE) {
        true => format!("asking {INSTANCE} for access: {last}"),
        false => last,
    }
}

impl Objects for S3 {
    fn place(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let payload = PutPayload::from(bytes.to_vec());
        self.run("writing", name, self.store.put(&self.path(name), payload)).map(drop)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let payload = PutPayload::from(bytes.to_vec());
        let options = PutOptions::from(PutMode::Create);
        let path = self.path(name);
        match self.run("writing", name, self.store.put_opts(&path, payload, options)) {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(false),
            put => put.map(|_| true),
        }
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let got = self.run("reading", name, async { self.store.get(&path).await?.bytes().await });
        match got {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            got => got.map(|bytes| Some(bytes.to_vec())),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Object>> {
        // The crate lists folders: a name's beginning within one is compared here.
        let folder = Path::from(format!("{}{}", self.prefix, prefix.trim_end_matches('/')));
        let offset = self.path(after);
        let listed = self.run("listing", prefix, async {
            let stream = match after.is_empty() {
                true => self.store.list(Some(&folder)),
                false => self.store.list_with_offset(Some(&folder), &offset),
            };
            stream.try_collect::<Vec<_>>().await
        })?;
        let mut objects: Vec<Object> = listed
            .into_iter()
            .filter_map(|object| {
                let name = object.location.as_ref().strip_prefix(self.prefix.as_str())?;
                Some(Object { name: name.to_owned(), bytes: object.size })
            })
            .collect();
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }

    fn delete(&self, name: &str) -> Result<()> {
        match self.run("removing", name, self.store.delete(&self.path(name))) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }
}

/// SHA-256 and HMAC for the signatures of requests.
#[derive(Debug)]
struct RustCrypto;

struct Sha(Sha256, [u8; 32]);

/// HMAC (RFC 2104): a hash of the inner hash, each begun with the key.
struct Hmac {
    inner: Sha256,
    outer: Sha256,
    code: [u8; 32],
}

impl Hmac {
    fn new(secret: &[u8]) -> Self {
        let mut key = [0; 64];
        match secret.len() {
            0..=64 => key[..secret.len()].copy_from_slice(secret),
            _ => key[..32].copy_from_slice(&Sha256::digest(secret)),
        }
        let begun = |pad: u8| Sha256::new_with_prefix(key.map(|byte| byte ^ pad));
        Self { inner: begun(0x36), outer: begun(0x5c), code: [0; 32] }
    }
}

impl CryptoProvider for RustCrypto {
    fn digest(&self, _: DigestAlgorithm) -> object_store::Result<Box<dyn DigestContext>> {
        Ok(Box::new(Sha(Sha256::new(), [0; 32])))
    }

    fn hmac(
        &self,
        _: DigestAlgorithm,
        secret: &[u8],
    ) -> object_store::Result<Box<dyn HmacContext>> {
        Ok(Box::new(Hmac::new(secret)))
    }

    fn sign(&self, _: SigningAlgorithm, _: &[u8]) -> object_store::Result<Box<dyn Signer>> {
        Err(object_store::Error::NotSupported { source: "RSA signatures are not built in".into() })
    }
}

impl DigestContext for Sha {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self) -> object_store::Result<&[u8]> {
        self.1 = self.0.finalize_reset().into();
        Ok(&self.1)
    }
}

impl HmacContext for Hmac {
    fn update(&mut self, data: &[u8]) {
        self.inner.update(data);
    }

    fn finish(&mut self) -> object_store::Result<&[u8]> {
        let inner = self.inner.finalize_reset();
        self.outer.update(inner);
        self.code = self.outer.finalize_reset().into();
        Ok(&self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test cases 2 and 6 of RFC 4231.
    #[test]
    fn codes_are_those_of_the_standard() {
        let code = |secret: &[u8], data: &[u8]| {
            let mut hmac = Hmac::new(secret);
            hmac.update(data);
            hmac.finish().unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(
            code(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            code(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
