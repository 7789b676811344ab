"""Record batches: the 61-byte header, the records inside, codecs, and the markers of transactions."""
