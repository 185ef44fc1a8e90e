//! What XLA compiles with beside libraries: an assembler, which it runs, and mathematical functions, which it links into
//! its kernels. No kernel runs here, so the stand-ins need do nothing: the assembler's output is its input, and each
//! function returns its first argument.
//!
//! XLA looks for both in the folder that `--xla_gpu_cuda_data_dir` names in `XLA_FLAGS`. The functions are in the text form
//! of LLVM's language, which is read as its binary form is.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Result;

/// The folder, beside the libraries.
const FOLDER: &str = "xla";

const ASSEMBLER: &str = r#"#!/bin/sh
# Stands in for the assembler: what it is given comes out as it is.
in= out=
while [ $# -gt 0 ]; do
    case $1 in
    --version) echo "ptxas of the simulated GPU, V12.99.0"; exit ;;
    -o) out=$2; shift ;;
    -*) ;;
    *) in=$1 ;;
    esac
    shift
done
exec cat "$in" >"$out"
"#;

const UNARY: &str = "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc erfinv exp exp10 exp2 expm1 fabs floor lgamma log \
                     log10 log1p log2 nearbyint rcbrt rint round rsqrt sin sinh sqrt tan tanh tgamma trunc";
const BINARY: &str = "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder";

/// Writes both into a folder of `out`.
pub fn place(out: &Path) -> Result<()> {
    let assembler = out.join(FOLDER).join("bin/ptxas");
    put(&assembler, ASSEMBLER)?;
    std::fs::set_permissions(&assembler, PermissionsExt::from_mode(0o755))
        .map_err(|e| format!("cannot make {} executable: {e}", assembler.display()))?;
    put(&out.join(FOLDER).join("nvvm/libdevice/libdevice.10.bc"), &functions())
}

fn put(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().unwrap_or(file);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, text))
        .map_err(|e| format!("cannot write {}: {e}", file.display()))
}

fn functions() -> String {
    let mut text = String::new();
    for (number, suffix) in [("float", "f"), ("double", "")] {
        for (names, more) in [(UNARY, String::new()), (BINARY, format!(", {number} %b"))] {
            for name in names.split_whitespace() {
                let _ = writeln!(
                    text,
                    "define {number} @__nv_{name}{suffix}({number} %a{more}) {{\n  ret {number} %a\n}}"
                );
            }
        }
    }
    text
}
