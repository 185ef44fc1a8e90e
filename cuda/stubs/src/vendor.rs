//! Which libraries are the vendor's, and whose an import is when its version does not say.

use std::path::Path;

pub const DRIVER: &str = "libcuda.so.1";
/// NVML, which programs open and none links: it is made whatever the wheels import.
pub const MANAGEMENT: &str = "libnvidia-ml.so.1";

/// The libraries by the beginning of their SONAME, and the file of hand-written bodies that goes into each.
const LIBRARIES: [(&str, Option<&str>); 18] = [
    ("libcublas.so", Some(include_str!("../bodies/cublas.c"))),
    ("libcublasLt.so", Some(include_str!("../bodies/cublasLt.c"))),
    ("libcudnn.so", Some(include_str!("../bodies/cudnn.c"))),
    ("libcufft.so", None),
    ("libcufftw.so", None),
    ("libcurand.so", None),
    ("libcusolver.so", None),
    ("libcusolverMg.so", None),
    ("libcusparse.so", None),
    ("libcusparseLt.so", None),
    ("libnccl.so", Some(include_str!("../bodies/nccl.c"))),
    ("libnvrtc.so", Some(include_str!("../bodies/nvrtc.c"))),
    ("libnvToolsExt.so", None),
    ("libcupti.so", Some(include_str!("../bodies/cupti.c"))),
    ("libcufile.so", Some(include_str!("../bodies/cufile.c"))),
    ("libnvJitLink.so", None),
    ("libnvshmem_host.so", None),
    (MANAGEMENT, Some(include_str!("../bodies/nvml.c"))),
];

/// Unversioned imports, by the beginning of their name. The first that fits.
const OWNERS: [(&str, &str); 8] = [
    ("cusparseLt", "libcusparseLt.so"),
    ("cuFile", "libcufile.so"),
    ("nccl", "libnccl.so"),
    ("curand", "libcurand.so"),
    ("cufft", "libcufft.so"),
    ("nvshmem", "libnvshmem_host.so"),
    ("nvtx", "libnvToolsExt.so"),
    ("nvJitLink", "libnvJitLink.so"),
];

/// Files and folders, by the beginning of their name, that import nothing of the vendor's: they open its libraries, and look
/// each function up by its name.
const LOOKING_UP: [&str; 3] = ["libtensorflow_", "xla_cuda", "jax_cuda"];

/// The libraries that these open, by the beginning of what they look up in them. The first that fits. Their numbers are those
/// of CUDA 12 and 13; of cuDNN there are two.
const LOOKED_UP: [(&str, &[&str]); 10] = [
    ("cublasLt", &["libcublasLt.so.12", "libcublasLt.so.13"]),
    ("cublas", &["libcublas.so.12", "libcublas.so.13"]),
    ("cudnn", &["libcudnn.so.8", "libcudnn.so.9"]),
    ("cufft", &["libcufft.so.11", "libcufft.so.12"]),
    ("cusparse", &["libcusparse.so.12"]),
    ("cusolver", &["libcusolver.so.11", "libcusolver.so.12"]),
    ("nccl", &["libnccl.so.2"]),
    ("cupti", &["libcupti.so.12", "libcupti.so.13"]),
    ("nvJitLink", &["libnvJitLink.so.12", "libnvJitLink.so.13"]),
    ("cuda", &["libcudart.so.12", "libcudart.so.13"]),
];

fn entry(soname: &str) -> Option<&'static (&'static str, Option<&'static str>)> {
    LIBRARIES.iter().find(|(stem, _)| stem_is(soname, stem))
}

fn stem_is(soname: &str, stem: &str) -> bool {
    soname.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

pub fn is_stub(soname: &str) -> bool {
    entry(soname).is_some()
}

pub fn is_vendor(soname: &str) -> bool {
    is_stub(soname) || stem_is(soname, "libcudart.so") || soname == DRIVER
}

pub fn body(soname: &str) -> &'static str {
    entry(soname).and_then(|(_, body)| *body).unwrap_or_default()
}

/// Returns whether a file looks the vendor's functions up.
pub fn looks_up(file: &Path) -> bool {
    let parts = file.iter().map(|part| part.to_string_lossy());
    let named = |part: &str| LOOKING_UP.iter().any(|start| part.starts_with(start));
    parts.rev().take(2).any(|part| named(&part))
}

/// Returns the libraries in which a name is looked up that stands in such a file; none if it is no function's.
pub fn looked_up_in(name: &str) -> &'static [&'static str] {
    let is_its = |start: &str| {
        let after = name.strip_prefix(start).and_then(|rest| rest.chars().next());
        after.is_some_and(|letter| letter.is_ascii_uppercase())
    };
    LOOKED_UP.iter().find(|(start, _)| is_its(start)).map_or(&[], |(_, sonames)| sonames)
}

/// Returns the first number of a SONAME's version.
pub fn major(soname: &str) -> u32 {
    let (_, version) = soname.split_once(".so.").unwrap_or_default();
    version.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the needed library that an unversioned import belongs to.
pub fn owner<'a>(symbol: &str, mut needed: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if let Some((_, stem)) = OWNERS.iter().find(|(start, _)| symbol.starts_with(start)) {
        return needed.find(|soname| stem_is(soname, stem));
    }
    let of_driver =
        symbol.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    of_driver.then_some(DRIVER)
}

#[cfg(test)]
mod tests {
    use super::looked_up_in;

    #[test]
    fn names_that_are_looked_up_have_a_library() {
        assert_eq!(looked_up_in("cublasLtCreate"), ["libcublasLt.so.12", "libcublasLt.so.13"]);
        assert_eq!(looked_up_in("cublasCreate_v2"), ["libcublas.so.12", "libcublas.so.13"]);
        assert_eq!(looked_up_in("cudnnCreate"), ["libcudnn.so.8", "libcudnn.so.9"]);
        assert_eq!(looked_up_in("cudaMalloc"), ["libcudart.so.12", "libcudart.so.13"]);
        assert!(
            ["cublas", "cublas_gemm", "cuMemAlloc_v2", "cuda_driver"]
                .iter()
                .all(|n| looked_up_in(n).is_empty())
        );
    }
}
