//! Whose function it would have been without us: the loader's rules of scope, from what is public of it.
//!
//! The global scope is the program, the preloads and what these need, in the order of the loader's list; then
//! every object that a `dlopen` with RTLD_GLOBAL promoted, and that the list does not show. An object opened
//! later has a local scope behind it: what it was opened with, breadth first from the object that was asked
//! for. That one is the first object in the list from which the object can be reached: any other that can
//! reach it would have brought it along earlier. Later openings that reach it are added behind, in their
//! order.
//!
//! Promotion can only be asked for, by `dlsym`, so not inside a hook, and not while the list is borrowed. A
//! strong reference seldom needs the answer: had it not been in scope, the program would not have come to the
//! call. So what its scope does not show is taken from any object. Weak references are the ones that can stay
//! unresolved, and there it has to be right: without the runtime in its scope a program goes its way without
//! CUDA, and must not be led into another library's private one. They ask, and so do objects whose own
//! runtime is not the only one that would do: once per object that calls, and only where the function exists
//! outside the scope seen so far.

use std::ffi::{CStr, c_void};

use object::elf::gnu_hash;

use crate::loader::functions::behind_us;
use crate::loader::link_map::{LoadedObjects, Name, ObjectId, came_late, with_objects};
use crate::loader::object::{LinkMap, Version};

type Address = *mut c_void;

/// The definition that a call of `symbol` out of `caller` would have reached without us. `deep`: the caller
/// was opened with RTLD_DEEPBIND, its local scope comes first. `caller` is `None` for code that no object
/// holds, made at run time.
pub fn definition(caller: Option<ObjectId>, symbol: &CStr, deep: bool) -> Option<Address> {
    enum Answer {
        Known(Option<Address>),
        /// Promoted objects come before what was found, if anything was: only the loader knows of them.
        AskLoader(Option<Address>),
    }

    let (mut linked, mut version) = (false, Name::<256>::empty());
    let answer = with_objects(|objects| {
        let caller = caller.and_then(|caller| objects.get(caller));
        // Without one, the code was handed the address by another object.
        let reference = caller.and_then(|c| c.reference(symbol)).unwrap_or_default();
        if let Version::Linked(name) = reference.version {
            version.set(name);
            linked = true;
        }
        let wanted = reference.version;
        let global = || objects.startup_objects().find_map(|o| o.definition(symbol, wanted));
        let local = || caller.and_then(|c| local_definition(objects, c, symbol, wanted));
        let found = if deep { local().or_else(global) } else { global().or_else(local) };
        // What the process began with comes first, whatever was promoted; so does the local scope where it
        // was asked for.
        let at_startup = |found: Address| objects.at(found).is_some_and(|o| is_startup(objects, o));
        if found.is_some_and(|found| deep || at_startup(found)) {
            return Answer::Known(found);
        }
        let mut all = objects.all().filter_map(|o| o.definition(symbol, wanted));
        match all.find(|other| Some(*other) != found) {
            None => Answer::Known(found.or_else(|| objects.find_in_any(symbol).filter(|_| !reference.weak))),
            Some(_) if found.is_some() || reference.weak => Answer::AskLoader(found),
            other => Answer::Known(other),
        }
    })?;
    match answer {
        Answer::Known(found) => found,
        Answer::AskLoader(found) => {
            let version = if linked { Version::Linked(version.get()) } else { Version::Any };
            behind_us(symbol, version).or(found)
        }
    }
}

/// What `dlsym(RTLD_DEFAULT, symbol)` out of `caller` would have found without us. The loader is asked.
pub fn rtld_default(
    caller: Option<ObjectId>,
    symbol: &CStr,
    version: Version,
    deep: bool,
) -> Option<Address> {
    let before_us = || {
        with_objects(|objects| {
            let mut before = objects.startup_objects().take_while(|o| !o.is_own());
            before.find_map(|o| o.definition(symbol, version))
        })
        .flatten()
    };
    let global = || before_us().or_else(|| behind_us(symbol, version));
    let local = || {
        with_objects(|objects| local_definition(objects, objects.get(caller?)?, symbol, version)).flatten()
    };
    if deep { local().or_else(global) } else { global().or_else(local) }
}

/// Keeps the object of `found` loaded from now on, as the loader does on behalf of who asked with
/// RTLD_DEFAULT, where that lies outside of what the asking object needs. Here the loader was asked on our
/// behalf, or not at all.
pub fn pin(caller: Option<ObjectId>, found: *const c_void) {
    let mut path = Name::<{ libc::PATH_MAX as usize }>::empty();
    let outside = with_objects(|objects| {
        let object = objects.at(found).filter(|o| !is_startup(objects, o))?;
        let needs_it = |caller: &LinkMap| {
            let index = Index::new(objects);
            index.closure(caller).objects(&index).any(|o| o.id() == object.id())
        };
        if caller.and_then(|c| objects.get(c)).is_some_and(needs_it) {
            return None;
        }
        path.set(object.path());
        Some(())
    });
    if outside.flatten().is_some() {
        // SAFETY: the path of a loaded object: nothing is loaded, a reference is taken.
        unsafe { libc::dlopen(path.get().as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    }
}

/// An answer to RTLD_NEXT.
pub enum Next {
    Found(Address),
    Nothing,
    /// Nothing that we can see; but we do not stand behind this caller, so the loader's own answer is never
    /// us.
    AskLoader,
}

/// What `dlsym(RTLD_NEXT, symbol)` out of `caller` would have found without us.
pub fn rtld_next(caller: ObjectId, symbol: &CStr, version: Version) -> Next {
    let mut before_us = false;
    let found = with_objects(|objects| {
        let caller = objects.get(caller)?;
        let find = |o: &LinkMap| o.definition(symbol, version);
        let behind_caller = |o: &&LinkMap| !std::ptr::eq(*o, caller);
        if objects.startup_objects().take_while(|o| !o.is_own()).any(|o| std::ptr::eq(o, caller)) {
            before_us = true;
            let behind = objects.startup_objects().skip_while(behind_caller).skip(1);
            return behind.take_while(|o| !o.is_own()).find_map(find);
        }
        if is_startup(objects, caller) {
            return objects.startup_objects().skip_while(behind_caller).skip(1).find_map(find);
        }
        let index = Index::new(objects);
        let mut closures = objects.dlopened_objects().map(|root| index.closure(root));
        let scope = closures.find(|c| c.objects(&index).any(|o| std::ptr::eq(o, caller)))?;
        scope.objects(&index).skip_while(behind_caller).skip(1).find_map(find)
    });
    match found.flatten() {
        Some(found) => Next::Found(found),
        None if before_us => behind_us(symbol, version).map_or(Next::Nothing, Next::Found),
        None => Next::AskLoader,
    }
}

/// True for an object that the process began with.
fn is_startup(objects: &LoadedObjects, object: &LinkMap) -> bool {
    objects.startup_objects().any(|o| std::ptr::eq(o, object))
}

/// The first definition in the local scopes of an object that was opened later.
fn local_definition(
    objects: &LoadedObjects,
    caller: &LinkMap,
    symbol: &CStr,
    version: Version,
) -> Option<Address> {
    let defines = |o: &LinkMap| o.definition(symbol, version);
    if is_startup(objects, caller) || objects.all().all(|o| defines(o).is_none()) {
        return None;
    }
    let index = Index::new(objects);
    objects.dlopened_objects().find_map(|root| {
        let scope = index.closure(root);
        if !scope.objects(&index).any(|o| std::ptr::eq(o, caller)) {
            return None;
        }
        scope.objects(&index).find_map(defines)
    })
}

/// Finds out whether this library was opened in a running process: then it stands behind all that the process began
/// with, which is the program, the preloads and what these need.
pub fn look_whether_late() {
    with_objects(|objects| {
        let index = Index::new(objects);
        let Some(program) = index.objects[0] else { return };
        let needed = index.closure(program);
        let last = needed.order[..needed.count].iter().copied().max().map_or(0, usize::from);
        let own = (0..index.count).find(|i| index.objects[*i].is_some_and(LinkMap::is_own));
        if own.is_none_or(|own| own > last)
            && let Some(last) = index.objects[last]
        {
            came_late(last);
        }
    });
}

/// Calls `each` for an object and what it needs, breadth first, as the loader orders them.
pub fn each_of_closure(objects: &LoadedObjects, root: &LinkMap, each: impl FnMut(&LinkMap)) {
    let index = Index::new(objects);
    index.closure(root).objects(&index).for_each(each);
}

/// The most objects that are looked at.
const MAX_OBJECTS: usize = 1024;

/// The loaded objects with hashes of the names they go by, for a look-up that goes through many of them.
struct Index<'l> {
    count: usize,
    objects: [Option<&'l LinkMap>; MAX_OBJECTS],
    soname: [u32; MAX_OBJECTS],
    file_name: [u32; MAX_OBJECTS],
}

/// Some of the objects of an [`Index`], in an order.
struct Closure {
    count: usize,
    order: [u16; MAX_OBJECTS],
}

impl<'l> Index<'l> {
    fn new(objects: &'l LoadedObjects) -> Index<'l> {
        let (none, zero) = ([None; MAX_OBJECTS], [0; MAX_OBJECTS]);
        let mut index = Index { count: 0, objects: none, soname: zero, file_name: zero };
        for (i, object) in objects.all().take(MAX_OBJECTS).enumerate() {
            index.objects[i] = Some(object);
            index.soname[i] = object.soname().map_or(0, |name| gnu_hash(name.to_bytes()));
            index.file_name[i] = gnu_hash(object.file_name());
            index.count += 1;
        }
        index
    }

    /// The object that goes by this name.
    fn named(&self, name: &CStr) -> Option<usize> {
        let hash = gnu_hash(name.to_bytes());
        (0..self.count).find(|i| {
            self.objects[*i].is_some_and(|object| {
                (self.soname[*i] == hash && object.soname() == Some(name))
                    || (self.file_name[*i] == hash && object.file_name() == name.to_bytes())
            })
        })
    }

    fn closure(&self, root: &LinkMap) -> Closure {
        let mut closure = Closure { count: 0, order: [0; MAX_OBJECTS] };
        let mut taken = [false; MAX_OBJECTS];
        let mut take = |closure: &mut Closure, i: usize| {
            if !std::mem::replace(&mut taken[i], true) {
                closure.order[closure.count] = i as u16;
                closure.count += 1;
            }
        };
        let is_root = |i: &usize| self.objects[*i].is_some_and(|object| std::ptr::eq(object, root));
        if let Some(i) = (0..self.count).find(is_root) {
            take(&mut closure, i);
        }
        let mut done = 0;
        while done < closure.count {
            let object = self.objects[usize::from(closure.order[done])];
            done += 1;
            for needed in object.into_iter().flat_map(LinkMap::needed) {
                if let Some(i) = self.named(needed) {
                    take(&mut closure, i);
                }
            }
        }
        closure
    }
}

impl Closure {
    fn objects<'l>(&self, index: &Index<'l>) -> impl Iterator<Item = &'l LinkMap> {
        self.order[..self.count].iter().filter_map(|i| index.objects[usize::from(*i)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::functions::real_dlsym;
    use crate::loader::link_map::{self, object_id};

    /// What the loader itself says, asked from this program.
    fn loader(handle: *mut c_void, symbol: &CStr) -> Option<Address> {
        // SAFETY: a handle of the loader's, a C string.
        let found = unsafe { real_dlsym().unwrap()(handle, symbol.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    const NAMES: [&CStr; 6] =
        [c"malloc", c"pthread_create", c"dlopen", c"_Unwind_Backtrace", c"dl_iterate_phdr", c"no_such_name"];

    #[test]
    fn the_global_scope_is_the_loaders() {
        link_map::init();
        // This program stands in for the preload: nothing it defines itself is ever found.
        for name in NAMES {
            assert_eq!(definition(None, name, false), loader(libc::RTLD_DEFAULT, name), "{name:?}");
            assert_eq!(rtld_default(None, name, Version::Any, false), loader(libc::RTLD_NEXT, name));
        }
    }

    #[test]
    fn next_is_behind_the_caller() {
        link_map::init();
        let libc_object = object_id(loader(libc::RTLD_DEFAULT, c"malloc").unwrap()).unwrap();
        // Nothing behind the C library defines it, and this program does not stand behind the C library.
        assert!(matches!(rtld_next(libc_object, c"malloc", Version::Any), Next::AskLoader));
    }

    #[test]
    fn a_closure_is_breadth_first_and_holds_each_object_once() {
        link_map::init();
        let orders = with_objects(|objects| {
            let program = objects.all().next().unwrap();
            let mut seen = [None; MAX_OBJECTS];
            let mut count = 0;
            each_of_closure(objects, program, |o| {
                seen[count] = Some(o.id());
                count += 1;
            });
            let direct = program.needed().count();
            (seen, count, direct, program.id())
        });
        let (seen, count, direct, program) = orders.unwrap();
        assert_eq!(seen[0], Some(program));
        assert!(count > direct && direct > 0);
        for i in 0..count {
            assert!(!seen[..i].contains(&seen[i]));
        }
    }
}
