//! Gives the library the driver's name, and binds its own calls to itself: a preload that exports a `cu*`
//! name catches the program's calls, never the driver's inner ones.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
