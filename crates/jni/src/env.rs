//! The functions of JNI that are needed here.

use std::ffi::{CStr, CString, c_int};
use std::mem::MaybeUninit;

use jni_sys::{
    JNIEnv, JNINativeInterface__1_4, jbyte, jbyteArray, jclass, jint, jlong, jobject, jobjectArray,
    jthrowable, jvalue,
};

use crate::call::Failure;

/// The environment of a thread during a call.
pub(crate) struct Env(*mut JNIEnv);

impl Env {
    /// # Safety
    /// `env` follows rule 1 of the crate, for as long as the value is used.
    #[inline(always)]
    pub(crate) unsafe fn new(env: *mut JNIEnv) -> Self {
        Self(env)
    }

    #[inline(always)]
    fn functions(&self) -> &JNINativeInterface__1_4 {
        // SAFETY: rule 1.
        unsafe { &(**self.0).v1_4 }
    }

    /// Returns the length of an array that is not null.
    ///
    /// # Safety
    /// `array` follows rule 2 of the crate, and is not null.
    #[inline(always)]
    pub(crate) unsafe fn len(&self, array: jbyteArray) -> usize {
        // SAFETY: rules 1 and 2.
        let len = unsafe { (self.functions().GetArrayLength)(self.0, array) };
        usize::try_from(len).unwrap_or(0)
    }

    /// Copies the beginning of an array, and returns it.
    ///
    /// # Safety
    /// `array` follows rule 2 of the crate, and has at least as many bytes as `room`.
    #[inline(always)]
    pub(crate) unsafe fn copy<'r>(
        &self,
        array: jbyteArray,
        room: &'r mut [MaybeUninit<u8>],
    ) -> &'r [u8] {
        let (to, len) = (room.as_mut_ptr(), room.len());
        // SAFETY: rules 1 and 2; the room is as long as what is copied, which initializes it.
        unsafe {
            (self.functions().GetByteArrayRegion)(self.0, array, 0, len as jint, to.cast());
            std::slice::from_raw_parts(to.cast(), len)
        }
    }

    /// Returns a new array with bytes.
    #[inline(always)]
    pub(crate) fn array(&self, bytes: &[u8]) -> Result<jbyteArray, Failure> {
        let Ok(len) = jint::try_from(bytes.len()) else {
            return Err(Failure::invalid(format!(
                "{} bytes are more than an array of Java holds",
                bytes.len()
            )));
        };
        // SAFETY: rule 1; the array has room for the bytes.
        unsafe {
            let array = (self.functions().NewByteArray)(self.0, len);
            if array.is_null() {
                return Err(Failure::Pending);
            }
            let from: *const jbyte = bytes.as_ptr().cast();
            (self.functions().SetByteArrayRegion)(self.0, array, 0, len, from);
            Ok(array)
        }
    }

    /// Stores an element of an array of objects.
    ///
    /// # Safety
    /// Both follow rule 2 of the crate, and `array` is not null.
    pub(crate) unsafe fn set(
        &self,
        array: jobjectArray,
        at: jint,
        element: jobject,
    ) -> Result<(), Failure> {
        // SAFETY: rules 1 and 2.
        unsafe {
            (self.functions().SetObjectArrayElement)(self.0, array, at, element);
            if (self.functions().ExceptionCheck)(self.0) { Err(Failure::Pending) } else { Ok(()) }
        }
    }

    /// Returns the address and the capacity of a direct buffer, or null for another buffer.
    ///
    /// # Safety
    /// `buffer` follows rule 2 of the crate, and is not null.
    #[inline(always)]
    pub(crate) unsafe fn buffer(&self, buffer: jobject) -> (*mut u8, jlong) {
        // SAFETY: rules 1 and 2.
        unsafe {
            let address = (self.functions().GetDirectBufferAddress)(self.0, buffer);
            (address.cast(), (self.functions().GetDirectBufferCapacity)(self.0, buffer))
        }
    }

    /// Makes a `QpairException` pending, or what prevented that.
    #[cold]
    pub(crate) fn throw(&self, code: c_int, message: &str) {
        let message: Vec<u16> = message.encode_utf16().collect();
        let constructor = (c"<init>", c"(ILjava/lang/String;)V");
        // SAFETY: rule 1; each result is looked at before the next call, by rule 5. The
        // constructor has the two arguments.
        unsafe {
            let functions = self.functions();
            let text = (functions.NewString)(self.0, message.as_ptr(), message.len() as jint);
            let class = self.class(c"io/qpair/QpairException");
            if text.is_null() || class.is_null() {
                return;
            }
            let (name, signature) = (constructor.0.as_ptr(), constructor.1.as_ptr());
            let made = (functions.GetMethodID)(self.0, class, name, signature);
            if made.is_null() {
                return;
            }
            let arguments = [jvalue { i: code }, jvalue { l: text }];
            let exception: jthrowable =
                (functions.NewObjectA)(self.0, class, made, arguments.as_ptr());
            if !exception.is_null() {
                (functions.Throw)(self.0, exception);
            }
        }
    }

    /// Makes a `NullPointerException` pending, or what prevented that.
    #[cold]
    pub(crate) fn throw_null(&self, name: &str) {
        let message = CString::new(format!("The {name} is null")).unwrap_or_default();
        let class = self.class(c"java/lang/NullPointerException");
        if !class.is_null() {
            // SAFETY: rule 1; the text is ASCII, and ends with a zero byte.
            unsafe { (self.functions().ThrowNew)(self.0, class, message.as_ptr()) };
        }
    }

    fn class(&self, name: &CStr) -> jclass {
        // SAFETY: rule 1; the text ends with a zero byte.
        unsafe { (self.functions().FindClass)(self.0, name.as_ptr()) }
    }
}
