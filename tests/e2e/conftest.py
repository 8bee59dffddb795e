"""The longest tests come first, so that none of them is left alone at the end of a run on several workers."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
